"""A program that spins in the middle of a timed run: no Speed moves by more than a tenth, or it is
marked."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from paths import ROOT

from harness.measures.table import measure
from harness.records.store import Run, read_lines, read_run
from harness.stats import total_ratio_interval

pytestmark = [pytest.mark.slow, pytest.mark.alone]
LINE = ["--suite", "gsm8k", "--methods", "llada,threshold,fef-2", "--limit", "10"]
MOST = 0.1
SPIN = "while True: pass"


def timed_run(out: Path, threads: int, spinning: int = 0) -> Run:
    """A run; programs begin to spin when a third of it is recorded."""
    command = [
        sys.executable,
        str(ROOT / "harness" / "run.py"),
        *LINE,
        "--threads",
        str(threads),
        "--out",
        str(out),
    ]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    programs: list[subprocess.Popen[bytes]] = []
    try:
        items = out / "items.jsonl"
        while run.poll() is None and not (items.exists() and len(read_lines(items)) >= 6):
            time.sleep(0.01)
        programs = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(spinning)]
        assert run.wait(timeout=900) == 0
    finally:
        for program in [run, *programs]:
            program.kill()
            program.wait()
    return read_run(out)


def quiet_run(folder: Path, threads: int) -> Run:
    """A run that nothing disturbed; another process may take a core once, and twice."""
    for attempt in range(3):
        run = timed_run(folder / f"quiet-{attempt}", threads)
        if not measure(run)["disturbed"].sum():
            return run
    pytest.fail("three runs in turn were disturbed: this test needs an idle machine")


def seconds_of(run: Run, method: str) -> npt.NDArray[np.float64]:
    items = run.items[run.items["method"] == method].sort_values("item")
    return items["seconds"].to_numpy(float)


def moved(quiet: Run, busy: Run, method: str) -> tuple[float, float]:
    """The interval of a method's speed over LLaDA in one run, divided by that in another."""
    seconds = [seconds_of(run, name) for run in (busy, quiet) for name in ("llada", method)]
    _, low, high = total_ratio_interval(seconds)
    return low, high


@pytest.mark.parametrize("threads", [1, 2])
def test_what_spins_moves_no_speed_or_is_marked(tmp_path: Path, threads: int) -> None:
    """A speed has moved if its whole interval says so: what other guests of a host take is nobody's
    fault here."""
    if (os.cpu_count() or 1) < threads:
        pytest.skip(f"needs {threads} cores")
    quiet = quiet_run(tmp_path, threads)
    for spinning in (1, os.cpu_count() or 1):
        busy = timed_run(tmp_path / f"busy-{spinning}", threads, spinning)
        marks = measure(busy).set_index("method")["disturbed"]
        for method in ("threshold", "fef-2"):
            low, high = moved(quiet, busy, method)
            marked = marks[method] > 0 or marks["llada"] > 0
            assert marked or (low <= 1 + MOST and high >= 1 - MOST), (
                f"{method} beside {spinning}: {low} to {high}"
            )
