"""How far a run is."""

import json
from pathlib import Path

import pytest
from filelock import FileLock
from msgspec.structs import replace
from run_records import item, save

from harness.errors import UserError
from harness.options import command_name
from harness.records.store import read_meta
from harness.run import main
from harness.runs.folder import LOCK
from harness.runs.record import describe_status, duration, finished


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of four methods on one suite of 3 items, 2 responses recorded."""
    items = [item("llada", "gsm8k", number) for number in range(2)]
    save(tmp_path, items, suites={"gsm8k": "GSM8K"}, data={"files": {"gsm8k": {"items": 3}}})
    return tmp_path


def test_a_run_has_stopped_goes_on_or_is_finished(run: Path) -> None:
    (run / LOCK).touch()
    stopped = f"stopped; go on with {command_name()} run --resume --out {run}"
    assert describe_status(run).splitlines() == [stopped, "GSM8K: 2 of 12 responses, 2 scored"]
    with FileLock(run / LOCK):
        assert describe_status(run).splitlines()[0] == "goes on"
    lines = [
        json.dumps(item(method, "gsm8k", n))
        for method in ("llada", "llada/2", "dcd", "fef-2")
        for n in range(3)
    ]
    (run / "items.jsonl").write_text("\n".join(lines) + "\n")
    config = read_meta(run).config
    assert describe_status(run).splitlines() == ["finished", "GSM8K: 12 of 12 responses, 12 scored"]
    assert finished(run, config)
    assert not finished(run, replace(config, temperature=0.5))
    (run / "items.jsonl").write_text("\n".join(lines[:-1]) + "\n")
    assert not finished(run, config)


def test_what_is_decoded_need_not_be_scored(run: Path) -> None:
    methods = ("llada", "llada/2", "dcd", "fef-2")
    rows = [
        item(method, "gsm8k", number, correct=None) for method in methods for number in range(3)
    ]
    rows[0]["correct"] = False
    (run / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    state, line = describe_status(run).splitlines()
    assert state == f"decoded, and not all scored; score it with {command_name()} score {run}"
    assert line == "GSM8K: 12 of 12 responses, 1 scored"


def test_a_folder_that_may_only_be_read_has_a_status(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    (run / LOCK).touch()
    monkeypatch.setattr("harness.runs.record.FileLock", fails)
    assert describe_status(run).splitlines()[1] == "GSM8K: 2 of 12 responses, 2 scored"


def test_the_command_prints_it_and_refuses_what_is_no_run(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--status", str(run)]) == 0
    assert "GSM8K: 2 of 12 responses, 2 scored" in capsys.readouterr().out
    with pytest.raises(UserError, match="holds no run"):
        main(["--status", str(run / "none")])


def test_durations_are_in_words() -> None:
    words = {0.2: "1 s", 40: "40 s", 100: "2 min", 3600: "60 min", 12_000: "3 h 20 min"}
    assert {seconds: duration(seconds) for seconds in words} == words
