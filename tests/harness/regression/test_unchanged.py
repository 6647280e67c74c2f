"""Costs on another class of platform are excused where the golden records' revision has them there too."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from gate_runs import ENVIRONMENT, items_of, run_of, verdict
from paths import ROOT

from harness.records.store import Run, read_run
from harness.regression import unchanged
from harness.regression.elsewhere import Responder
from harness.regression.golden import Key

ELSEWHERE = {**ENVIRONMENT, "cpu_capability": "AVX512"}
KEY = ("fef-2", "math", 7)
WINDOW = {"proposed": 5, "accepted": 4, "rejected": 1, "committed": 5}


@pytest.fixture
def golden(tmp_path: Path) -> Run:
    return run_of(tmp_path / "golden", items_of(**WINDOW))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_of(tmp_path / "run", items_of(forwards=49, **WINDOW), ELSEWHERE)


def answer_of(run: Run) -> dict[str, Any]:
    """What a worker answers to the item of KEY where it takes as much as in the run."""
    row = run.items.set_index(["method", "suite", "item"]).loc[KEY].to_dict()
    return {"tokens": f"{row['tokens_hash']}ffff", "costs": row, "windows": [(5, 4, 5)]}


def answered(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]) -> None:
    """The golden records' revision gives this answer to every item."""
    monkeypatch.setattr(unchanged, "_answers", lambda golden, run, keys: [answer] * len(keys))


def test_costs_that_the_golden_revision_has_here_are_excused_and_named(
    golden: Run, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answered(monkeypatch, answer_of(run))
    assert verdict(run, golden.folder) == 0
    assert "excused, the golden records' revision takes as much here: fef-2 math 7" in capsys.readouterr().out


@pytest.mark.parametrize(
    "change",
    [
        *({"costs": costs} for costs in ({"forwards": 48}, {"forwards": 50}, {"draft_rows": 1})),
        *({"tokens": "other"}, {"windows": []}, {"error": "unheard of"}),
    ],
    ids=str,
)
def test_what_the_golden_revision_does_otherwise_here_is_a_change(
    golden: Run, run: Run, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    usual = answer_of(run)
    costs = {"costs": usual["costs"] | change.get("costs", {})}
    answered(monkeypatch, change if "error" in change else usual | change | costs)
    assert verdict(run, golden.folder) == 1


@pytest.mark.parametrize("measure", ["tokens_hash", "text", "correct", "prompt_hash"])
def test_of_an_item_with_another_response_or_verdict_that_revision_is_not_asked(
    golden: Run, run: Run, monkeypatch: pytest.MonkeyPatch, measure: str
) -> None:
    monkeypatch.setattr(unchanged, "_answers", lambda *asked: pytest.fail("asked"))
    assert unchanged.unchanged_items(golden, run, {KEY: {"forwards", measure}}) == ([], [])


def test_on_the_same_class_of_platform_that_revision_is_not_asked(
    golden: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unchanged, "_answers", lambda *asked: pytest.fail("asked"))
    assert verdict(run_of(tmp_path / "here", items_of(forwards=49, **WINDOW)), golden.folder) == 1


def test_golden_records_outside_the_history_excuse_nothing_and_say_so(
    golden: Run, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verdict(run, golden.folder) == 1
    assert "the golden records' revision cannot be asked for its costs here: " in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(("more", "excused"), [(0, True), (1, False)])
def test_ssd_on_nano_takes_here_what_it_took_under_the_golden_revision(more: int, excused: bool) -> None:
    """Whatever processor this is: golden costs that are not its own are excused, one forward more is not."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("needs a git checkout")
    golden = read_run(ROOT / "results" / "golden" / "nano", windows=False)
    key: Key = ("ssd", "math", 0)
    row = Responder(golden, "cpu", 1, ["ssd"]).answer(key)
    row["forwards"] += more
    run = Run(golden.folder, golden.meta, pd.DataFrame([row]), golden.windows)
    assert unchanged.unchanged_items(golden, run, {key: {"forwards"}}) == ([key] if excused else [], [])
