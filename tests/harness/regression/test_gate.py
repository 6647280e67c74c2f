"""The regression gate catches what was planted, names it, and lets an unchanged run pass."""

from pathlib import Path
from typing import Any

import pytest
from gate_runs import ENVIRONMENT, ITEMS, METHODS, items_of, run_of, verdict

from harness.errors import UserError
from harness.gate import main

COST = {"forwards": 49}


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    return run_of(tmp_path / "golden", items_of()).folder


def test_an_unchanged_run_passes(
    tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verdict(run_of(tmp_path / "run", items_of()), golden) == 0
    assert "no difference" in capsys.readouterr().out


def test_a_changed_token_is_caught_and_named(
    tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verdict(run_of(tmp_path / "run", items_of(tokens_hash="other")), golden) == 1
    rows = [*map(str.split, capsys.readouterr().out.splitlines())]
    assert ["fef-2", "math", "tokens_hash", "math7", "other", "7"] in rows


def test_a_measure_or_an_item_that_one_side_lacks_is_caught(tmp_path: Path, golden: Path) -> None:
    rows = [
        {name: value for name, value in row.items() if name != "forwards"} for row in items_of()
    ]
    lacking = [run_of(tmp_path / "measure", rows), run_of(tmp_path / "item", items_of()[:-1])]
    whole = run_of(tmp_path / "whole", items_of())
    for run in lacking:
        assert verdict(run, golden) == 1 and verdict(whole, run.folder) == 1
    assert verdict(whole, run_of(tmp_path / "empty", []).folder) == 1


def test_on_another_platform_costs_may_differ_and_nothing_else(
    tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = {**ENVIRONMENT, "cpu_capability": "AVX512"}
    assert verdict(run_of(tmp_path / "costs", items_of(**COST), other), golden) == 0
    assert "another platform, where costs may differ: processor" in capsys.readouterr().out
    assert verdict(run_of(tmp_path / "tokens", items_of(tokens_hash="other"), other), golden) == 1
    same = {**ENVIRONMENT, "cpu": "Vendor model 9"}
    assert verdict(run_of(tmp_path / "same", items_of(**COST), same), golden) == 1


def test_a_run_of_the_first_items_passes_if_that_is_asked_for(tmp_path: Path, golden: Path) -> None:
    run = run_of(tmp_path / "run", [row for row in items_of() if row["item"] < 9], limit=9)
    line = [str(run.folder), "--against", str(golden), "--first"]
    assert main([*line, "9"]) == 0
    with pytest.raises(UserError, match="limit"):
        main([*line, "8"])
    lacking = [row for row in items_of() if row["item"] < 8]
    assert main([str(run_of(tmp_path / "lacking", lacking, limit=9).folder), *line[1:], "9"]) == 1


def test_records_of_several_seeds_are_compared_whole(tmp_path: Path) -> None:
    of_two = {"temperature": 1.0, "limit": ITEMS // 2, "seeds": [0, 1]}
    golden, run = (
        run_of(tmp_path / name, items_of(), **of_two).folder for name in ("golden", "run")
    )
    assert main([str(run), "--against", str(golden)]) == 0
    with pytest.raises(UserError, match="--first is for records of one seed"):
        main([str(run), "--against", str(golden), "--first", str(ITEMS // 2)])


FEWER = {"llada": {"label": "llada", "method": "llada", "suites": {}}}
OTHER_ROLES = {name: {"label": name, "method": name, "role": "fef"} for name in METHODS}


@pytest.mark.parametrize(
    "change",
    [
        *(
            {"temperature": 1.0},
            {"seed": 1},
            {"seeds": [0, 2]},
            {"prompt": "plain"},
            {"chat_template_args": {"a": 1}},
        ),
        *({"methods": OTHER_ROLES}, {"methods": FEWER}, {"limit": 9}),
    ],
    ids=str,
)
def test_other_settings_are_refused(tmp_path: Path, golden: Path, change: dict[str, Any]) -> None:
    methods, limit = change.get("methods", METHODS), change.get("limit", ITEMS)
    rows = [row for row in items_of() if row["method"] in methods and row["item"] < limit]
    with pytest.raises(UserError, match="differ in settings"):
        verdict(run_of(tmp_path / "run", rows, **change), golden)
