"""The regression gate catches what was planted, names it, and lets an unchanged run pass."""

import json
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


def test_an_unchanged_run_passes(tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict(run_of(tmp_path / "run", items_of()), golden) == 0
    assert "no difference" in capsys.readouterr().out


def test_a_changed_token_is_caught_and_named(tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict(run_of(tmp_path / "run", items_of(tokens_hash="other")), golden) == 1
    rows = [*map(str.split, capsys.readouterr().out.splitlines())]
    assert ["fef-2", "math", "tokens_hash", "math7", "other", "7"] in rows


CHANGES: list[dict[str, Any]] = [
    *({"forwards": cost} for cost in (47, 49)),
    *({"rows": 61}, {"token_forwards": 99}, {"text": "said so"}, {"gold": "8"}, {"prompt_hash": "q"}, {"seed": 5}),
    *({"prompt_tokens": 9}, {"content_tokens": 9, "eos_tokens": 39}, {"eos_tokens": 9, "post_stop_tokens": 19}),
    *({"correct": False}, {"correct": None}, {"proposed": 4, "accepted": 3, "rejected": 1}),
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_one_change_of_one_item_is_caught(tmp_path: Path, golden: Path, change: dict[str, Any]) -> None:
    assert verdict(run_of(tmp_path / "run", items_of(**change)), golden) == 1


def test_a_measure_or_an_item_that_one_side_lacks_is_caught(tmp_path: Path, golden: Path) -> None:
    rows = [{name: value for name, value in row.items() if name != "forwards"} for row in items_of()]
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
    golden, run = (run_of(tmp_path / name, items_of(), **of_two).folder for name in ("golden", "run"))
    assert main([str(run), "--against", str(golden)]) == 0
    with pytest.raises(UserError, match="--first is for records of one seed"):
        main([str(run), "--against", str(golden), "--first", str(ITEMS // 2)])


FEWER = {"llada": {"label": "llada", "method": "llada", "suites": {}}}
OTHER_ROLES = {name: {"label": name, "method": name, "role": "fef"} for name in METHODS}


@pytest.mark.parametrize(
    "change",
    [
        *({"temperature": 1.0}, {"seed": 1}, {"seeds": [0, 2]}, {"prompt": "plain"}, {"chat_template_args": {"a": 1}}),
        *({"methods": OTHER_ROLES}, {"methods": FEWER}, {"limit": 9}),
    ],
    ids=str,
)
def test_other_settings_are_refused(tmp_path: Path, golden: Path, change: dict[str, Any]) -> None:
    methods, limit = change.get("methods", METHODS), change.get("limit", ITEMS)
    rows = [row for row in items_of() if row["method"] in methods and row["item"] < limit]
    with pytest.raises(UserError, match="differ in settings"):
        verdict(run_of(tmp_path / "run", rows, **change), golden)


def test_other_weights_are_named(tmp_path: Path, golden: Path) -> None:
    run = run_of(tmp_path / "run", items_of())
    meta = json.loads((run.folder / "run.json").read_text())
    meta["weights"]["nano"]["sha256"] = {"model.safetensors": "f"}
    (run.folder / "run.json").write_text(json.dumps(meta))
    with pytest.raises(UserError, match=r"differ in settings: weights\.nano"):
        verdict(run, golden)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ([], "nothing to compare"),
        (["--against-rev", "no-such-rev"], r"git rev-parse .*no-such-rev"),
        (["--against-rev", "HEAD", "--tolerance=nan"], "--tolerance"),
    ],
)
def test_what_cannot_be_compared_with_is_refused(golden: Path, line: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        main([str(golden), *line])
