"""Workers and the disk fail: nothing that is finished is lost or decoded twice, and the run goes
on.

The workers are processes of a real cluster that only say that they decoded.
"""

import errno
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from command_lines import resolved_run
from fake_actor import FOLDER, FakeActor, fault
from paths import ROOT
from ray_nodes import Nodes, ray_nodes

from harness.cluster import pool as pools
from harness.cluster.pool import RayPool
from harness.errors import UserError, one_line_errors
from harness.records import store
from harness.records.store import read_lines, read_run
from harness.run import main, pool_for
from harness.runs.folder import claim_folder, exclusive
from harness.runs.record import Missing, describe_status, record

# Nodes that start beside other tests run out of the time that Ray gives them.
pytestmark = [pytest.mark.slow, pytest.mark.alone]
METHODS = ["llada", "llada/2"]
THIRD = ("llada/2", "lists", 2)
KEYS = ("method", "suite", "item")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A cluster of one node."""
    with ray_nodes(
        tmp_path_factory.mktemp("ray"), 2, FAULTS=str(tmp_path_factory.mktemp("faults"))
    ) as cluster:
        yield cluster


@pytest.fixture
def faults(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files say what happens to workers that only say that they decoded."""
    for name, value in nodes.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests" / "helpers")]))
    monkeypatch.setattr(pools, "RayPool", partial(RayPool, actor=FakeActor))
    folder = Path(nodes.environment[FOLDER])
    for file in folder.rglob("*"):
        if file.is_file():
            file.unlink()
    return folder


def decode(nodes: Nodes, out: Path, workers: int = 2, resume: bool = False) -> Missing:
    """The part of a run that decodes and records; the responses that were left out."""
    run = resolved_run(*line_for(nodes, out, workers))
    folder = claim_folder(out, run.config, resume)
    with exclusive(folder), pool_for(run, out.parent) as pool:
        return record(folder, run, pool)


def line_for(nodes: Nodes, out: Path, workers: int = 2) -> list[str]:
    where = ["--workers", str(workers), "--ray-address", nodes.address, "--out", str(out)]
    return ["--suite", "lists", "--methods", ",".join(METHODS), *where]


def keys_of(folder: Path) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[key] for key in KEYS) for row in read_lines(folder / "items.jsonl"))


ALL = Counter((method, "lists", item) for method in METHODS for item in range(6))


def test_a_worker_that_is_killed_once_loses_nothing(
    nodes: Nodes, faults: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fault(faults, "killed", THIRD, times=1)
    assert decode(nodes, tmp_path / "run") == {}
    assert keys_of(tmp_path / "run") == ALL
    assert (
        "its process ended; it was killed, was out of memory, or crashed; another one is s"
        in capfd.readouterr().err
    )


def test_an_item_that_kills_its_workers_is_named_and_left_out_and_all_else_is_there(
    nodes: Nodes, faults: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fault(faults, "killed", THIRD)
    assert one_line_errors(lambda: main(line_for(nodes, tmp_path))) == 2
    said = capfd.readouterr().err.strip().splitlines()
    assert said[-1].startswith(
        "error: left out: llada/2 lists 2 (3 workers died with its item, the last so: its proc"
    )
    assert sum(line.endswith("another one is started") for line in said) == 3
    assert keys_of(tmp_path) == ALL - Counter([THIRD])
    (left,) = read_run(tmp_path).meta.sessions[0]["left_out"]
    assert tuple(left[key] for key in KEYS) == THIRD
    table = (tmp_path / "tables" / "main.md").read_text()
    assert "- left out: 1 (3 workers died with its item, the last so: its process ended;" in table
    assert "left out: 1" in describe_status(tmp_path)


def test_a_worker_out_of_memory_is_replaced_and_what_was_left_out_is_tried_again_on_resume(
    nodes: Nodes, faults: Path, tmp_path: Path
) -> None:
    fault(faults, "memory", THIRD, times=3)
    reason = (
        "3 workers died with its item, the last so: MemoryError: no room for the keys and values"
    )
    assert decode(nodes, tmp_path / "run") == {THIRD: reason}
    assert keys_of(tmp_path / "run") == ALL - Counter([THIRD])
    assert decode(nodes, tmp_path / "run", workers=1, resume=True) == {}
    assert keys_of(tmp_path / "run") == ALL


def test_what_is_wrong_with_the_run_itself_stops_it_and_is_said(
    nodes: Nodes, faults: Path, tmp_path: Path
) -> None:
    fault(faults, "wrong", THIRD)
    with pytest.raises(UserError, match=r"^the decoder is wrong$"):
        decode(nodes, tmp_path / "run")


def test_workers_that_all_die_stop_the_run_instead_of_dying_for_ever(
    nodes: Nodes, faults: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.cluster.pool.HOPELESS", 3)
    for key in ALL:
        fault(faults, "killed", key)
    with pytest.raises(
        UserError, match=r"workers died one after the other and decoded nothing, .* --resume"
    ):
        decode(nodes, tmp_path / "run", workers=1)


def test_a_full_disk_stops_the_run_which_goes_on_afterwards(
    nodes: Nodes, faults: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, added = store._append, []

    def full(path: Path, rows: list[dict[str, Any]]) -> None:
        added.append(path)
        if len(added) > 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, rows)

    with monkeypatch.context() as patch:
        patch.setattr(store, "_append", full)
        with pytest.raises(
            UserError,
            match="No space left on device; what is finished is kept: make room and go on",
        ):
            decode(nodes, tmp_path / "run")
    assert keys_of(tmp_path / "run").total() == 4  # windows and items, a call each
    assert decode(nodes, tmp_path / "run", resume=True) == {}
    assert keys_of(tmp_path / "run") == ALL


def test_the_end_of_rays_own_processes_ends_the_run_at_once_and_loses_nothing(
    tmp_path: Path,
) -> None:
    """Its node goes with its agent, and no other would ever come."""
    out = tmp_path / "run"
    line = [
        "--suite",
        "lists",
        "--methods",
        "llada",
        "--untimed",
        "--workers",
        "1",
        "--out",
        str(out),
    ]
    run = psutil.Popen(
        [sys.executable, "harness/run.py", *line], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while not ((out / "items.jsonl").exists() and read_lines(out / "items.jsonl")):
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.2)
    (agent,) = (each for each in run.children(recursive=True) if "DashboardAgent" in each.name())
    agent.kill()
    assert "Ray has no node left" in run.communicate(timeout=60)[1] and run.returncode == 2
    assert len(read_lines(out / "items.jsonl")) >= 1
