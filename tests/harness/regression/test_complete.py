"""A golden record must hold what its configuration promises: an emptied one lets nothing pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gate_runs import ITEMS, items_of, run_of, verdict

from harness.errors import UserError
from harness.gate import main
from harness.records.store import Run

Kept = Callable[[dict[str, Any]], bool]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_of(tmp_path / "run", items_of())


def golden_of(folder: Path, kept: Kept, **config: Any) -> Path:
    return run_of(folder, [row for row in items_of() if kept(row)], **config).folder


def test_an_emptied_golden_record_is_refused(tmp_path: Path, run: Run) -> None:
    with pytest.raises(UserError, match="holds no items"):
        verdict(run, golden_of(tmp_path / "golden", lambda row: False))


def test_a_golden_record_of_one_line_is_refused(tmp_path: Path, run: Run) -> None:
    with pytest.raises(UserError, match=r"llada on gsm8k \(1 of 100 items\), fef-2 on gsm8k \(0 of 100 items\)"):
        verdict(run, run_of(tmp_path / "golden", items_of()[:1]).folder)


@pytest.mark.parametrize("missing", ["run.json", "items.jsonl"])
def test_a_golden_record_whose_file_is_missing_is_refused(tmp_path: Path, run: Run, missing: str) -> None:
    golden = golden_of(tmp_path / "golden", lambda row: True)
    (golden / missing).unlink()
    with pytest.raises(UserError, match=r"holds no (run|items)"):
        verdict(run, golden)


LACKS: dict[str, Kept] = {
    "llada on gsm8k": lambda row: row["method"] != "llada",
    "fef-2 on math": lambda row: row["suite"] != "math",
    "llada on mbpp": lambda row: (row["suite"], row["item"]) != ("mbpp", ITEMS - 1),
    "fef-2 on humaneval": lambda row: (row["method"], row["suite"], row["item"]) != ("fef-2", "humaneval", 0),
}


@pytest.mark.parametrize("lacking", LACKS)
def test_a_golden_record_without_a_method_suite_or_item_is_refused(tmp_path: Path, run: Run, lacking: str) -> None:
    with pytest.raises(UserError, match=f"golden lacks items of .*{lacking}"):
        verdict(run, golden_of(tmp_path / "golden", LACKS[lacking]))


def test_without_a_limit_all_methods_must_have_the_same_items(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", items_of(), limit=None)
    golden = golden_of(tmp_path / "golden", LACKS["fef-2 on humaneval"], limit=None)
    with pytest.raises(UserError, match=r"lacks items of fef-2 on humaneval \(99 of 100 items\):"):
        verdict(run, golden)


@pytest.mark.parametrize("what", ["methods", "suites"])
def test_a_golden_record_that_promises_nothing_is_refused(tmp_path: Path, run: Run, what: str) -> None:
    with pytest.raises(UserError, match=f"holds no {what}"):
        verdict(run, golden_of(tmp_path / "golden", lambda row: True, **{what: {}}))


def test_a_golden_record_that_lost_a_method_in_its_configuration_too_is_refused(tmp_path: Path, run: Run) -> None:
    golden = golden_of(tmp_path / "golden", LACKS["llada on gsm8k"])
    meta = json.loads((golden / "run.json").read_text())
    del meta["config"]["methods"]["llada"]
    (golden / "run.json").write_text(json.dumps(meta))
    with pytest.raises(UserError, match="differ in settings: methods"):
        verdict(run, golden)


def test_an_incomplete_run_does_not_become_the_golden_record(tmp_path: Path) -> None:
    golden, run = tmp_path / "golden", run_of(tmp_path / "run", items_of()[:-1])
    with pytest.raises(UserError, match="lacks items of fef-2 on mbpp"):
        main([str(run.folder), "--against", str(golden), "--update"])
    assert not golden.exists()
