"""Two runs within tolerances: what was planted is caught and named, noise is not."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from run_records import item, save

from harness.errors import UserError
from harness.gate import main

WITHIN = ["--accuracy", "4", "--speed", "0.05"]
METHODS = {name: {"label": name, "method": name} for name in ("llada", "mine")}


def run_of(
    folder: Path, seed: int, machine: float = 1.0, nap: float = 0.0, data: str = "", **changes: Any
) -> str:
    """A run of 20 problems with noisy seconds; `mine` naps on all; changes: to its problem 3."""
    draw = random.Random(seed)
    rows = []
    for number in range(20):
        for method, seconds in (("llada", 0.3), ("mine", 0.15)):
            row = item(method, "gsm8k", number, seconds=machine * seconds * draw.gauss(1, 0.08))
            row["prompt_hash"] = f"{data}{number}"
            if method == "mine":
                row["seconds"] += nap
            if (method, number) == ("mine", 3):
                row |= changes
            rows.append(row)
    config = {"methods": METHODS, "suites": {"gsm8k": {"title": "GSM8K"}}}
    return str(save(folder, rows, config=config).folder)


@pytest.fixture
def old(tmp_path: Path) -> str:
    return run_of(tmp_path / "old", seed=0)


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_run_on_another_machine_passes(tmp_path: Path, old: str, seed: int) -> None:
    new = run_of(tmp_path / "new", seed, machine=3.0)
    assert main([new, "--against", old, *WITHIN]) == 0


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"nap": 0.05}, "mine: 1.5"),
        ({"correct": False}, "mine on gsm8k: accuracy 95.0, before 100.0 (20 responses)"),
        ({"correct": None}, "mine on gsm8k: 1 of 20 responses are not scored"),
        ({"forwards": 49}, "mine on gsm8k: 48.05 forwards a response, before 48.00"),
    ],
    ids=["nap", "point", "unscored", "forward"],
)
def test_what_was_planted_is_caught_and_named(
    tmp_path: Path, old: str, change: dict[str, Any], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([run_of(tmp_path / "new", 1, **change), "--against", old, *WITHIN]) == 1
    difference, verdict = capsys.readouterr().out.splitlines()
    assert difference.startswith(line) and verdict.startswith("gate: FAILED")


def test_a_speed_that_others_disturbed_fails(tmp_path: Path, old: str) -> None:
    items = tmp_path / "old" / "items.jsonl"
    rows = [json.loads(line) | {"disturbed": True} for line in items.read_text().splitlines()]
    items.write_text("".join(json.dumps(row) + "\n" for row in rows))
    new = run_of(tmp_path / "new", 1)
    assert main([new, "--against", old, *WITHIN]) == 1
    assert main([new, "--against", old, "--accuracy", "4"]) == 0


def test_problems_are_drawn_anew_and_not_their_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []

    def interval(parts: list[Any]) -> tuple[float, float, float]:
        drawn.append([part.tolist() for part in parts])
        return 1.0, 1.0, 1.0

    monkeypatch.setattr("harness.regression.tolerance.total_ratio_interval", interval)
    rows = [
        item(method, "gsm8k", number, seconds=1.0 + number, prompt_hash=f"{number % 2}")
        for method in METHODS
        for number in range(4)
    ]
    config = {"methods": METHODS, "suites": {"gsm8k": {"title": "GSM8K"}}, "samples": 2}
    run = save(tmp_path, rows, config=config, data={"files": {"gsm8k": {"items": 4}}})
    assert main([str(run.folder), "--against", str(run.folder), *WITHIN]) == 0
    assert drawn == [[[4.0, 6.0]] * 4]


def test_more_forwards_pass_where_they_are_allowed(tmp_path: Path, old: str) -> None:
    new = run_of(tmp_path / "new", 1, forwards=49)  # of one response in twenty, 48 before
    for share, code in (("0.0010", 1), ("0.0011", 0)):
        line = [new, "--against", old, "--accuracy", "5", "--forwards", share]
        assert main(line) == code


def test_a_loss_as_large_as_the_tolerance_passes(tmp_path: Path, old: str) -> None:
    new = run_of(tmp_path / "new", 1, correct=False)
    assert main([new, "--against", old, "--accuracy", "5"]) == 0


def test_a_method_that_is_missing_fails(tmp_path: Path, old: str) -> None:
    lines = (tmp_path / "old" / "items.jsonl").read_text().splitlines(keepends=True)
    new = Path(run_of(tmp_path / "new", 1))
    (new / "items.jsonl").write_text("".join(line for line in lines if "mine" not in line))
    assert main([str(new), "--against", old, "--accuracy", "5"]) == 1


def test_other_problems_are_refused(tmp_path: Path, old: str) -> None:
    with pytest.raises(UserError, match="other prompts in"):
        main([run_of(tmp_path / "new", 1, data="other"), "--against", old, "--accuracy", "5"])


def test_a_decoder_from_outside_is_not_in_a_revision_of_the_harness(tmp_path: Path) -> None:
    plugin = {
        "plugin": "mine.py",
        "path": "mine.py",
        "sha256": "0",
        "registered": {"decoders": ["mine"]},
    }
    rows = [item("mine", "gsm8k", 0)]
    run = save(
        tmp_path, rows, config={"methods": METHODS, "suites": {"gsm8k": {}}}, plugins=[plugin]
    )
    with pytest.raises(UserError, match="has no mine; compare two runs instead"):
        main([str(run.folder), "--against-rev", "HEAD"])


def test_a_setting_that_one_run_has_not_is_named_in_plain_words(tmp_path: Path, old: str) -> None:
    new = run_of(tmp_path / "new", 1)
    record = json.loads((Path(new) / "run.json").read_text())
    record["config"]["batch"] = 4
    (Path(new) / "run.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match=r"batch \(None there, 4 now\)"):
        main([new, "--against", old, "--speed", "0.05"])
