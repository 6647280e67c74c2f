"""Run folders: one process at a time, nothing written over, sessions with receipts, faults that
lose nothing."""

import json
import multiprocessing
import os
import random
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

from harness.errors import UserError, one_line_errors
from harness.records import environment as receipts
from harness.records.schema import SCHEMA, RunConfig
from harness.records.store import Recorder, read_lines, read_meta, read_run
from harness.runs.folder import claim_folder, exclusive, remove_records, runs_folder, session

CONFIG: dict[str, Any] = {
    "models": {"base": {"gsm8k": "nano"}},
    "methods": {"fef-2": {}},
    "suites": {"gsm8k": {}},
}


def test_only_a_checkout_has_runs_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    monkeypatch.chdir(tmp_path)
    assert runs_folder(packages) == tmp_path / "results" / "runs"
    (packages / "pyproject.toml").touch()
    assert runs_folder(packages) == packages / "results" / "runs"


def start(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps({"schema": SCHEMA, "config": CONFIG}))


def item(number: int) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "method": "fef-2",
        "suite": "gsm8k",
        "item": number,
        "text": "t" * 200,
        "correct": None,
    }


def windows(number: int) -> list[dict[str, Any]]:
    return [
        {"method": "fef-2", "suite": "gsm8k", "item": number, "step": 0, "round": n, "start": n}
        for n in range(3)
    ]


def write_items(folder: Path, count: int) -> None:
    with exclusive(folder):
        recorder = Recorder(folder)
        for number in range(count):
            if not recorder.done("fef-2", "gsm8k", number):
                recorder.add(item(number), windows(number))


def forked(target: Callable[..., None], *arguments: Any) -> multiprocessing.process.BaseProcess:
    process = multiprocessing.get_context("fork").Process(target=target, args=arguments)
    process.start()
    return process


def check_whole(folder: Path) -> set[int]:
    """The recorded items of a run that may have been killed, after opening it again."""
    done = {row["item"] for row in read_lines(folder / "items.jsonl")}
    Recorder(folder)
    run = read_run(folder)
    if len(run.items):
        assert set(run.items["item"]) == done and run.items["item"].is_unique
        assert run.windows.groupby("item").size().to_dict() == dict.fromkeys(done, 3)
    return done


def test_kills_at_twenty_moments_lose_no_item_and_double_none(tmp_path: Path) -> None:
    folder, moments = tmp_path / "run", random.Random(0)
    start(folder)
    before: set[int] = set()
    for _ in range(20):
        process = forked(write_items, folder, 100_000)
        time.sleep(moments.uniform(0.005, 0.08))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        done = check_whole(folder)
        assert done >= before
        before = done
    assert before
    write_items(folder, len(before) + 5)
    assert check_whole(folder) == set(range(len(before) + 5))


def fill_a_small_disk(folder: Path, size: int) -> None:
    """A file may not grow over `size` bytes: what a full disk does to a write."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def write() -> int:
        write_items(folder, 1000)
        return 0

    os._exit(one_line_errors(write))


@pytest.mark.parametrize("size", [900, 3000, 3100, 3217])
def test_a_full_disk_leaves_a_run_that_goes_on(tmp_path: Path, size: int) -> None:
    folder = tmp_path / "run"
    start(folder)
    process = forked(fill_a_small_disk, folder, size)
    process.join()
    assert process.exitcode == 2
    assert (folder / "items.jsonl").read_bytes().endswith(b"\n") or not (
        folder / "items.jsonl"
    ).read_bytes()
    done = check_whole(folder)
    write_items(folder, 30)
    assert check_whole(folder) == set(range(30)) >= done


def test_a_full_disk_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(tmp_path)
    recorder = Recorder(tmp_path)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("harness.records.store.os.fsync", full)
    with pytest.raises(UserError, match=r"No space left on device.*--resume"):
        recorder.add(item(0), windows(0))
    assert not recorder.done("fef-2", "gsm8k", 0) and read_lines(tmp_path / "items.jsonl") == []


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with exclusive(tmp_path / "run"):
        with pytest.raises(UserError, match="another process"), exclusive(tmp_path / "run"):
            pass
        (tmp_path / "run" / "run.json").write_text("{}")
    with exclusive(tmp_path / "run"):
        pass


def test_a_folder_that_stayed_empty_goes_again_and_one_that_cannot_be_made_is_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(RuntimeError), exclusive(tmp_path / "run"):
        raise RuntimeError
    assert not (tmp_path / "run").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"), exclusive(tmp_path / "file" / "run"):
        pass


def test_every_session_has_its_receipts(tmp_path: Path) -> None:
    start(tmp_path)
    with session(tmp_path, "cpu"):
        assert read_meta(tmp_path).sessions[0]["end"] is None
    with pytest.raises(KeyboardInterrupt), session(tmp_path, "cpu"):
        raise KeyboardInterrupt
    sessions = read_meta(tmp_path).sessions
    assert len(sessions) == 2 and all(each["end"]["at"] >= each["start"]["at"] for each in sessions)
    assert {"cpu_mhz", "busy_percent", "load", "available_gib", "gpu"} <= set(sessions[0]["start"])


@pytest.mark.parametrize(("timed", "warnings"), [(True, 1), (False, 0)])
def test_a_busy_machine_is_named_where_seconds_count(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    timed: bool,
    warnings: int,
) -> None:
    monkeypatch.setattr(receipts.psutil, "cpu_percent", lambda interval, percpu: [70.0] * 64)
    start(tmp_path)
    with session(tmp_path, "cpu", timed):
        pass
    said = capsys.readouterr().err
    assert (
        said.count("\n")
        == said.count("warning: other programs use 70% of the processor")
        == warnings
    )


def test_a_run_is_overwritten_where_that_is_told_and_other_files_stay(tmp_path: Path) -> None:
    start(tmp_path / "run")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    (tmp_path / "run" / "tables").mkdir()
    config = convert(CONFIG, RunConfig)
    with pytest.raises(UserError, match="--overwrite to begin anew"):
        claim_folder(tmp_path / "run", config, resume=False)
    assert claim_folder(tmp_path / "run", config, resume=False, overwrite=True) == tmp_path / "run"
    remove_records(tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir() if path.name != ".lock"] == [
        "notes.txt"
    ]
    with pytest.raises(UserError, match="give one of them"):
        claim_folder(tmp_path / "run", config, resume=True, overwrite=True)
