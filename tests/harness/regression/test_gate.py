"""The regression gate catches what was planted, names it, and lets an unchanged run pass."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gate_runs import ENVIRONMENT, ITEMS, METHODS, items_of, run_of, verdict
from run_records import PAPER_SUITES

from harness.errors import UserError
from harness.gate import main
from harness.records.schema import RunConfig, RunRecord
from harness.records.store import Run
from harness.regression.golden import compare_accuracy, platform_class


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    return run_of(tmp_path / "golden", items_of()).folder


def test_an_unchanged_run_passes(tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict(run_of(tmp_path / "run", items_of()), golden) == 0
    assert "compared exactly" in capsys.readouterr().out


def test_a_changed_token_is_caught_and_shown(tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict(run_of(tmp_path / "run", items_of(tokens_hash="other", text="said so")), golden) == 1
    printed = capsys.readouterr().out
    assert "fef-2 math 7" in printed and "'said so'" in printed


CHANGES: list[dict[str, Any]] = [
    *({"forwards": cost} for cost in (47, 49)),
    *({"rows": cost} for cost in (59, 61)),
    *({"token_forwards": cost} for cost in (99, 101)),
    *({"text": "said so"}, {"gold": "8"}, {"prompt_hash": "q"}, {"seed": 5}),
    *({"prompt_tokens": 9}, {"content_tokens": 9, "eos_tokens": 39}, {"eos_tokens": 9, "post_stop_tokens": 19}),
    *({"correct": False}, {"correct": None}, {"proposed": 4, "accepted": 3, "rejected": 1}),
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_one_change_of_one_item_is_caught(tmp_path: Path, golden: Path, change: dict[str, Any]) -> None:
    assert verdict(run_of(tmp_path / "run", items_of(**change)), golden) == 1


@pytest.mark.parametrize("measure", ["tokens_hash", "forwards", "text"])
def test_a_run_that_does_not_say_what_the_golden_one_says_is_caught(tmp_path: Path, golden: Path, measure: str) -> None:
    rows = [{name: value for name, value in row.items() if name != measure} for row in items_of()]
    run = run_of(tmp_path / "run", rows)
    assert verdict(run, golden) == 1
    (golden / "windows.jsonl").touch()
    assert verdict(run_of(tmp_path / "same", items_of()), run.folder) == 1


def test_verdicts_that_no_sandbox_gave_are_missing_unless_that_is_told(
    tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row | ({"correct": None} if row["suite"] == "mbpp" else {}) for row in items_of()]
    run = run_of(tmp_path / "run", rows)
    meta = json.loads((run.folder / "run.json").read_text())
    (run.folder / "run.json").write_text(json.dumps({**meta, "scoring": {"not_scored": {"mbpp": "no sandbox"}}}))
    assert verdict(run, golden) == 1
    says = "verdicts of mbpp are missing; if that is meant: --allow-unscored mbpp: no sandbox"
    assert says in capsys.readouterr().out
    assert main([str(run.folder), "--against", str(golden), "--allow-unscored", "humaneval, mbpp"]) == 0
    assert "verdicts of mbpp are left out: no sandbox" in capsys.readouterr().out
    assert main([str(run.folder), "--against", str(golden), "--allow-unscored", "humaneval"]) == 1


def test_a_missing_item_is_caught(tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict(run_of(tmp_path / "run", items_of()[:-1]), golden) == 1
    rows = [*map(str.split, capsys.readouterr().out.splitlines())]
    assert ["missing", "fef-2", "mbpp", "items", "1", "0", "99"] in rows


def test_a_run_of_the_first_items_passes_if_that_is_asked_for(tmp_path: Path, golden: Path) -> None:
    run = run_of(tmp_path / "run", [row for row in items_of() if row["item"] < 9], limit=9)
    line = [str(run.folder), "--against", str(golden), "--first"]
    assert main([*line, "9"]) == 0
    with pytest.raises(UserError, match="limit"):
        main([*line, "8"])
    changed = [row for row in items_of(tokens_hash="other") if row["item"] < 9]
    assert main([str(run_of(tmp_path / "changed", changed, limit=9).folder), *line[1:], "9"]) == 1
    lacking = [row for row in items_of() if row["item"] < 8]
    assert main([str(run_of(tmp_path / "lacking", lacking, limit=9).folder), *line[1:], "9"]) == 1


def test_other_weights_are_named(tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(tmp_path / "run", items_of())
    meta = json.loads((run.folder / "run.json").read_text())
    meta["weights"]["nano"]["sha256"] = {"model.safetensors": "f"}
    (run.folder / "run.json").write_text(json.dumps(meta))
    assert verdict(run, golden) == 1
    assert "weights of nano" in capsys.readouterr().out


def lose(share: float, seed: int = 0) -> list[dict[str, Any]]:
    """The items, FeF right on so many fewer of them (a share), and other tokens where it is."""
    rows = items_of()
    right = [row for row in rows if row["method"] == "fef-2" and row["correct"]]
    for place in np.random.default_rng(seed).permutation(len(right))[: round(share * ITEMS * len(PAPER_SUITES))]:
        right[place] |= {"correct": False, "tokens_hash": "other"}
    return rows


@pytest.mark.parametrize(("share", "code"), [(0.05, 1), (0.005, 0)], ids=["five points", "an item or two"])
def test_of_samples_a_drop_is_caught(
    tmp_path: Path, share: float, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = run_of(tmp_path / "golden", items_of(), temperature=1.0)
    assert verdict(run_of(tmp_path / "run", lose(share), temperature=1.0), golden.folder) == code
    assert "not greedy" in capsys.readouterr().out


@pytest.mark.parametrize("unscored", [{"mbpp"}, {"gsm8k", "math", "humaneval", "mbpp"}], ids=len)
def test_of_samples_verdicts_that_are_missing_are_caught(
    tmp_path: Path, unscored: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    golden = run_of(tmp_path / "golden", items_of(), temperature=1.0).folder
    rows = [
        row | ({"correct": None} if row["suite"] in unscored and row["method"] == "fef-2" else {}) for row in items_of()
    ]
    run = run_of(tmp_path / "run", rows, temperature=1.0)
    assert verdict(run, golden) == 1
    assert ["missing", "fef-2"] in [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    meta = json.loads((run.folder / "run.json").read_text())
    meta["scoring"] = {"not_scored": dict.fromkeys(unscored, "no sandbox")}
    (run.folder / "run.json").write_text(json.dumps(meta))
    line = [str(run.folder), "--against", str(golden), "--allow-unscored", ",".join(unscored)]
    assert main(line) == (0 if len(unscored) < len(PAPER_SUITES) else 1)


def test_records_of_several_seeds_need_all_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of_two = {"temperature": 1.0, "limit": ITEMS // 2, "seeds": [0, 1]}
    golden, run = (run_of(tmp_path / name, items_of(), **of_two).folder for name in ("golden", "run"))
    assert main([str(run), "--against", str(golden)]) == 0
    with pytest.raises(UserError, match="--first is for records of one seed"):
        main([str(run), "--against", str(golden), "--first", str(ITEMS // 2)])
    killed = run_of(tmp_path / "killed", [row for row in items_of() if row["item"] < ITEMS // 2], **of_two)
    with pytest.raises(UserError, match=r"killed lacks items of .*\(50 of 100 items\)"):
        main([str(killed.folder), "--against", str(tmp_path / "new"), "--update"])


@pytest.mark.parametrize(
    ("rows", "config", "says"),
    [
        (items_of(), {"seeds": [0, 2]}, "differ in settings: seeds"),
        (items_of(), {"prompt": "plain"}, "differ in settings: prompt"),
        (items_of(), {"chat_template_args": {"a": 1}}, "differ in settings: chat_template_args"),
        (items_of(prompt_hash="other"), {}, "have different problems: llada math 7"),
        (items_of(gold="other"), {}, "have different problems: llada math 7"),
    ],
    ids=["seeds", "prompt", "template", "prompt_hash", "gold"],
)
def test_samples_of_other_settings_or_problems_are_not_compared(
    tmp_path: Path, rows: list[dict[str, Any]], config: dict[str, Any], says: str
) -> None:
    golden = run_of(tmp_path / "golden", items_of(), temperature=1.0)
    with pytest.raises(UserError, match=says):
        verdict(run_of(tmp_path / "run", rows, temperature=1.0, **config), golden.folder)


@pytest.mark.parametrize("limits", ["--margin=nan", "--margin=inf", "--margin=-1", "--tolerance=nan", "--tolerance=-1"])
def test_limits_that_decide_nothing_are_refused(tmp_path: Path, golden: Path, limits: str) -> None:
    with pytest.raises(UserError, match=limits.partition("=")[0]):
        main([str(golden), "--against", str(golden), limits])


def test_an_update_writes_over_golden_records_alone(tmp_path: Path, golden: Path) -> None:
    run = run_of(tmp_path / "run", items_of())
    (run.folder / "windows.jsonl").touch()
    other = tmp_path / "other"
    other.mkdir()
    (other / "items.jsonl").write_text("precious")
    before = (run.folder / "run.json").read_text()
    for folder in (run.folder, other):
        with pytest.raises(UserError, match=f"{folder} holds a .*choose another folder"):
            main([str(run.folder), "--against", str(folder), "--update"])
    assert (run.folder / "run.json").read_text() == before and (other / "items.jsonl").read_text() == "precious"


def test_too_few_samples_are_undecided(tmp_path: Path) -> None:
    few = [row for row in items_of() if row["item"] < 5]
    before, now = run_of(tmp_path / "a", few), run_of(tmp_path / "b", few)
    assert set(compare_accuracy(before, now, margin=5.0)["verdict"]) == {"undecided"}


def test_models_of_one_maker_and_kind_are_one_class() -> None:
    both = (ENVIRONMENT, {**ENVIRONMENT, "cpu": "Vendor model 9"})
    one, other = (RunRecord(schema=1, config=RunConfig(), environment=environment) for environment in both)
    assert platform_class(one) == platform_class(other)


FEWER = {"llada": {"label": "llada", "method": "llada", "suites": {}}}
OTHER_ROLES = {name: {"label": name, "method": name, "role": "fef"} for name in METHODS}


@pytest.mark.parametrize(
    "change", [{"temperature": 1.0}, {"seed": 1}, {"methods": OTHER_ROLES}, {"methods": FEWER}, {"limit": 9}]
)
def test_other_settings_are_refused(tmp_path: Path, golden: Path, change: dict[str, Any]) -> None:
    kept = (change.get("methods") or METHODS, change.get("limit", ITEMS))
    held = [row for row in items_of() if row["method"] in kept[0] and row["item"] < kept[1]]
    with pytest.raises(UserError, match="differ in settings"):
        verdict(run_of(tmp_path / "run", held, **change), golden)


def test_an_update_says_what_changed_and_passes(
    tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (golden / "windows.jsonl").unlink()
    run = run_of(tmp_path / "run", items_of(tokens_hash="other"))
    assert main([str(run.folder), "--against", str(golden), "--update"]) == 0
    assert "tokens_hash" in capsys.readouterr().out
    assert verdict(run, golden) == 0


# A golden record must hold what its configuration promises
@pytest.mark.parametrize(
    ("line", "says"), [([], "nothing to compare"), (["--against-rev", "no-such-rev"], r"git rev-parse .*no-such-rev")]
)
def test_what_cannot_be_compared_with_is_refused(golden: Path, line: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        main([str(golden), *line])


Kept = Callable[[dict[str, Any]], bool]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_of(tmp_path / "run", items_of())


def golden_of(folder: Path, kept: Kept, **config: Any) -> Path:
    return run_of(folder, [row for row in items_of() if kept(row)], **config).folder


@pytest.mark.parametrize(
    ("lines", "says"),
    [(0, "holds no items"), (1, r"llada on gsm8k \(1 of 100 items\), fef-2 on gsm8k \(0 of 100 items\)")],
)
def test_an_emptied_golden_record_is_refused(tmp_path: Path, run: Run, lines: int, says: str) -> None:
    with pytest.raises(UserError, match=says):
        verdict(run, run_of(tmp_path / "golden", items_of()[:lines]).folder)


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
