"""On another class of platform an item is excused if the golden records' revision decodes it alike there."""

import shutil
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from gate_runs import ENVIRONMENT, items_of, run_of, verdict
from paths import ROOT

from harness.records.store import Run, read_run
from harness.regression import golden as judgement
from harness.regression.golden import Key, excused_items

OTHER_PLATFORM = {**ENVIRONMENT, "cpu_capability": "AVX512"}
KEY: Key = ("fef-2", "math", 7)
WINDOW = {"proposed": 5, "accepted": 4, "rejected": 1, "committed": 5}
TIE = {"tokens_hash": "other", "text": "said so", "content_tokens": 19, "eos_tokens": 29, "correct": False, **WINDOW}
COSTS = {"forwards": 49, **WINDOW}


@pytest.fixture
def golden(tmp_path: Path) -> Run:
    return run_of(tmp_path / "golden", items_of(**WINDOW))


def answered(monkeypatch: pytest.MonkeyPatch, run: Run, **changes: Any) -> None:
    """The golden records' revision answers on every item what the run has for KEY, but for these changes."""
    row = run.items.set_index(["method", "suite", "item"]).loc[KEY].to_dict()
    costs = row | changes.pop("costs", {})
    usual = {"tokens": f"{row['tokens_hash']}ffff", "text": row["text"], "costs": costs, "windows": [(5, 4, 5)]}

    @contextmanager
    def side(*_: object) -> Any:
        yield SimpleNamespace(decode=lambda request: usual | changes)

    @contextmanager
    def checkout(rev: str) -> Any:
        yield Path()

    job = SimpleNamespace(suite="math", models={"fef-2": None}, prompts=[torch.tensor([1])], draw=lambda at: (0, at))
    fakes = {"Side": side, "checkout": checkout, "revision_of": lambda folder: "revision"}
    fakes |= {"recorded": lambda *_: None, "load": lambda *_: ([job], {}), "request_of": lambda *_: {}}
    for name, fake in fakes.items():
        monkeypatch.setattr(judgement, name, fake)


@pytest.mark.parametrize("change", [TIE, COSTS], ids=["a tie", "other costs"])
def test_what_that_revision_decodes_alike_passes_and_is_named(
    golden: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], change: Any
) -> None:
    run = run_of(tmp_path / "run", items_of(**change), OTHER_PLATFORM)
    answered(monkeypatch, run)
    assert verdict(run, golden.folder) == 0
    assert "excused, the golden records' revision gives the same here: fef-2 math 7" in capsys.readouterr().out


@pytest.mark.parametrize(
    "answer",
    [
        *({"costs": costs} for costs in ({"forwards": 48}, {"forwards": 50}, {"draft_rows": 1})),
        *({"tokens": "else"}, {"text": "said"}, {"windows": []}, {"error": "unheard of"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("change", [TIE | {"forwards": 49}, COSTS], ids=["a tie", "other costs"])
def test_what_that_revision_does_otherwise_here_is_a_change(
    golden: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], change: dict[str, Any]
) -> None:
    run = run_of(tmp_path / "run", items_of(**change), OTHER_PLATFORM)
    if answer == {"text": "said"} and change == COSTS:
        answer = {"text": "said so"}
    answered(monkeypatch, run, **answer)
    assert verdict(run, golden.folder) == 1


@pytest.mark.parametrize(
    "measures",
    [
        *({"forwards", each} for each in ("text", "correct", "content_tokens", "prompt_hash")),
        *({"tokens_hash", each} for each in ("prompt_hash", "gold", "seed", "prompt_tokens")),
        {"correct"},
    ],
    ids=lambda names: " ".join(sorted(names)),
)
def test_another_prompt_or_another_text_or_verdict_of_the_same_tokens_is_no_rounding(
    golden: Run, monkeypatch: pytest.MonkeyPatch, measures: set[str]
) -> None:
    monkeypatch.setattr(judgement, "revision_of", lambda folder: pytest.fail("asked"))
    assert excused_items(golden, golden, {KEY: measures}) == []


def test_on_the_same_platform_no_revision_is_asked(
    golden: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judgement, "revision_of", lambda folder: pytest.fail("asked"))
    assert verdict(run_of(tmp_path / "here", items_of(**COSTS)), golden.folder) == 1


def test_golden_records_outside_the_history_excuse_nothing_and_say_so(
    golden: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verdict(run_of(tmp_path / "run", items_of(**COSTS), OTHER_PLATFORM), golden.folder) == 1
    printed = capsys.readouterr().out
    assert "another class of platform: processor" in printed
    assert "the golden records' revision cannot decode here: " in printed


@pytest.mark.slow
@pytest.mark.parametrize(("more", "excused"), [(0, True), (1, False)])
def test_ssd_on_nano_takes_here_what_the_golden_revision_takes(more: int, excused: bool, tmp_path: Path) -> None:
    """Whatever processor this is: golden costs that are not this one's are excused, one forward more is not."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("needs a git checkout")
    golden = read_run(ROOT / "results" / "golden" / "nano", windows=False)
    from harness import run as harness_run

    line = ["--suite", "math", "--methods", "ssd", "--limit", "1", "--threads", "2", "--quiet"]
    assert harness_run.main([*line, "--out", str(tmp_path / "run")]) == 0
    made = read_run(tmp_path / "run", windows=False)
    items = pd.DataFrame(made.items).assign(forwards=made.items["forwards"] + more)
    run = Run(golden.folder, golden.meta, items, golden.windows)
    key: Key = ("ssd", "math", 0)
    assert excused_items(golden, run, {key: {"forwards"}}) == ([key] if excused else [])
