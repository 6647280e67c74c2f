"""--status: what is recorded, whether the run goes on, and how fast."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from filelock import FileLock
from run_records import item, save

from harness.errors import UserError
from harness.run import main
from harness.runs.folder import LOCK
from harness.runs.progress import NAME, describe_status


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of four methods on one suite of 3 items, 2 responses recorded."""
    items = [item("llada", "gsm8k", number) for number in range(2)]
    save(tmp_path, items, suites={"gsm8k": "GSM8K"}, data={"files": {"gsm8k": {"items": 3}}})
    return tmp_path


def test_a_run_that_nobody_works_on_has_stopped(run: Path) -> None:
    (run / LOCK).touch()
    stopped = f"stopped; go on with the same options and --resume --out {run}"
    assert describe_status(run).splitlines() == [stopped, "GSM8K: 2 of 12 responses"]


def test_a_run_that_goes_on_says_how_fast(run: Path) -> None:
    with FileLock(run / LOCK):
        assert describe_status(run).splitlines()[0] == "goes on: no speed is known yet"
        note = {"at": "now", "workers": 3, "per_second": 2.0, "left_seconds": 5.0}
        (run / NAME).write_text(json.dumps(note))
        assert describe_status(run).splitlines()[0] == "goes on: 2 a second on 3 workers, about 5 s left (now)"


def test_a_torn_note_is_no_speed(run: Path) -> None:
    (run / NAME).write_text('{"at": "no')
    with FileLock(run / LOCK):
        assert describe_status(run).startswith("goes on: no speed is known yet")


def test_a_run_with_all_its_responses_is_finished(run: Path) -> None:
    lines = [json.dumps(item(method, "gsm8k", n)) for method in ("llada", "llada/2", "dcd", "fef-2") for n in range(3)]
    (run / "items.jsonl").write_text("\n".join(lines) + "\n")
    assert describe_status(run).splitlines() == ["finished", "GSM8K: 12 of 12 responses"]


def test_the_command_prints_it_and_refuses_a_folder_without_a_run(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--status", str(run)]) == 0
    assert "GSM8K: 2 of 12 responses" in capsys.readouterr().out
    with pytest.raises(UserError, match="holds no run"):
        main(["--status", str(run / "none")])
