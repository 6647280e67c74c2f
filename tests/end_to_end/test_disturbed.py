"""A program that spins in the middle of a timed run: no Speed moves by more than a tenth, or it is marked."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from paths import ROOT

from harness.measures.table import measure
from harness.records.store import read_lines, read_run

pytestmark = [pytest.mark.slow, pytest.mark.alone]
LINE = ["--suite", "gsm8k", "--methods", "llada,threshold,fef-2", "--limit", "6"]
MOST = 0.1
SPIN = "while True: pass"


def timed_run(out: Path, threads: int, spinning: int = 0) -> pd.DataFrame:
    """The measures of a run by method; programs begin to spin when a third of it is recorded."""
    command = [sys.executable, str(ROOT / "harness" / "run.py"), *LINE, "--threads", str(threads), "--out", str(out)]
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
    return measure(read_run(out)).set_index("method")


@pytest.mark.parametrize("threads", [1, 2])
def test_what_spins_moves_no_speed_or_is_marked(tmp_path: Path, threads: int) -> None:
    if (os.cpu_count() or 1) < threads:
        pytest.skip(f"needs {threads} cores")
    quiet = timed_run(tmp_path / "quiet", threads)
    assert quiet["disturbed"].sum() == 0
    for spinning in (1, os.cpu_count() or 1):
        busy = timed_run(tmp_path / f"busy-{spinning}", threads, spinning)
        for method, row in busy.iterrows():
            marked = row["disturbed"] > 0 or busy.loc["llada", "disturbed"] > 0
            moved = abs(row["speedup"] / quiet.loc[method, "speedup"] - 1)
            assert marked or moved <= MOST, f"{method} beside {spinning}: {moved:.2f}"
