"""A cluster of two nodes: the four suites have the tokens of one process, also if a worker and then
a node are killed.

And a driver that is killed, whose run goes on without workers.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_lines import resolved_run
from paths import ROOT
from ray_nodes import ray_nodes, with_it

from harness.records.store import read_lines
from harness.run import main, pool_for
from harness.runs.folder import claim_folder, exclusive
from harness.runs.record import describe_status, record

# Nodes that start beside other tests run out of the time that Ray gives them.
pytestmark = [pytest.mark.slow, pytest.mark.alone]
LINE = ["--suite", "gsm8k,math,humaneval,mbpp", "--methods", "llada,fef-2", "--limit", "4"]
LINE += ["--threads", "1", "--untimed"]
STARTED_WITHIN = 180  # seconds


def tokens_of(folder: Path) -> dict[tuple[str, str, int], str]:
    """The hash of every response's tokens; none is there twice."""
    rows = read_lines(folder / "items.jsonl")
    found = {(row["method"], row["suite"], row["item"]): row["tokens_hash"] for row in rows}
    assert len(found) == len(rows)
    return found


def wait_for(items: Path, count: int, driver: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + STARTED_WITHIN
    while not (items.exists() and items.read_bytes().count(b"\n") >= count):
        assert driver.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)


def test_a_worker_and_then_a_node_are_killed_and_the_run_has_every_token(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with ray_nodes(tmp_path, 1, 1) as cluster:
        line = [*LINE, "--workers", "2", "--ray-address", cluster.address, "--out", str(run)]
        with (tmp_path / "said").open("wb") as said:
            driver = subprocess.Popen(
                [sys.executable, str(ROOT / "harness" / "run.py"), *line],
                env=os.environ | cluster.environment,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )
        try:
            wait_for(run / "items.jsonl", 3, driver)
            (worker,) = cluster.workers(cluster.nodes[0])
            with_it(worker, signal.SIGKILL)
            wait_for(run / "items.jsonl", 8, driver)
            cluster.kill(cluster.nodes[1])
            assert driver.wait(STARTED_WITHIN) == 0, (tmp_path / "said").read_text()
        finally:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
    deaths = [line for line in (tmp_path / "said").read_text().splitlines() if " died: " in line]
    assert len(deaths) >= 2, "a worker of each node"
    one = resolved_run(*LINE)
    folder = claim_folder(tmp_path / "one", one.config, resume=False)
    with exclusive(folder), pool_for(one, tmp_path) as pool:
        record(folder, one, pool)
    assert len(tokens_of(run)) == 32 and tokens_of(run) == tokens_of(tmp_path / "one")


def test_a_driver_that_is_killed_is_gone_with_its_workers_and_its_run_goes_on_without(
    tmp_path: Path,
) -> None:
    line = ["--suite", "lists", "--methods", "llada,fef-2", "--limit", "15", "--threads", "1"]
    items = tmp_path / "run" / "items.jsonl"
    command = [
        sys.executable,
        str(ROOT / "harness" / "run.py"),
        *line,
        "--workers",
        "1",
        "--out",
        str(items.parent),
    ]
    driver = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        wait_for(items, 3, driver)
        assert describe_status(items.parent).startswith("goes on\n")
    finally:
        os.killpg(driver.pid, signal.SIGKILL)  # what Ray started is in its session
        driver.wait()
    kept = tokens_of(items.parent)
    assert 3 <= len(kept) < 30
    assert describe_status(items.parent).startswith("stopped; go on with")
    assert main([*line, "--out", str(items.parent), "--resume"]) == 0
    assert len(tokens_of(items.parent)) == 30 and kept.items() <= tokens_of(items.parent).items()
