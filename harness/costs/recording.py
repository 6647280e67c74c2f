"""What records cost: adding one to a run while it decodes, and rendering the tables of a large run.

Both use the records of a real run: they are added again to an empty run, and repeated under new item numbers.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd

from harness.errors import UserError
from harness.records.store import KEY, Recorder, Run, read_lines, read_run

ROOT = Path(__file__).resolve().parents[2]
ITEMS, WINDOWS = 100_000, 2_000_000
ADDED = 500
Lines = list[dict[str, Any]]


def bench_recording(folder: Path, items: int = ITEMS, windows: int = WINDOWS) -> dict[str, pd.DataFrame]:
    """The tables `recording` and `rendering`.

    recording: milliseconds to add an item with its windows, each flushed to disk, the mean of the first ADDED; and that
    in percent of the mean seconds of a response of each method that the run has. rendering: seconds of tables/render.py
    in a separate process, on the run repeated until it has `items` items and, if it has any, `windows` windows, with
    seconds of processor time and peak memory in MiB. Raises UserError if `folder` holds no run with seconds
    of items, or the tables cannot be made.
    """
    run = read_run(folder)
    if "seconds" not in run.items:
        raise UserError(f"{folder} has no items with seconds; give the folder of a run that has")
    lines, drafted = read_lines(folder / "items.jsonl"), read_lines(folder / "windows.jsonl")
    copies = max(math.ceil(items / len(lines)), math.ceil(windows / len(drafted)) if drafted else 1)
    with tempfile.TemporaryDirectory() as scratch:
        return {
            "recording": _recording(run, lines, drafted, Path(scratch) / "added"),
            "rendering": _rendering(folder, lines, drafted, Path(scratch) / "many", copies),
        }


def _recording(run: Run, lines: Lines, windows: Lines, folder: Path) -> pd.DataFrame:
    folder.mkdir()
    recorder = Recorder(folder)
    of_item: dict[tuple[Any, ...], Lines] = {}
    for window in windows:
        of_item.setdefault(_key(window), []).append(window)
    added = [(line, of_item.get(_key(line), [])) for line in lines[:ADDED]]
    began = time.perf_counter()
    for line, own in added:
        recorder.add(line, own)
    each = (time.perf_counter() - began) / len(added)
    responses = run.items.groupby("method", sort=False)["seconds"].mean()
    return pd.DataFrame(
        {"method": responses.index, "ms an item": 1e3 * each, "% of decoding": (100 * each / responses).to_list()}
    )


def _rendering(source: Path, lines: Lines, windows: Lines, folder: Path, copies: int) -> pd.DataFrame:
    folder.mkdir()
    shutil.copyfile(source / "run.json", folder / "run.json")
    step = 1 + max(line["item"] for line in lines)
    for name, rows in (("items", lines), ("windows", windows)):
        with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            for copy in range(copies):
                file.writelines(json.dumps(row | {"item": row["item"] + copy * step}) + "\n" for row in rows)
    began = time.perf_counter()
    command = [sys.executable, str(ROOT / "tables" / "render.py"), str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)  # unlike getrusage, it counts this one child only
    seconds, process.returncode = time.perf_counter() - began, os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise UserError(f"the tables of {source}, {copies} times over, could not be made; see the message above")
    return pd.DataFrame(
        {
            "items": [copies * len(lines)],
            "windows": [copies * len(windows)],
            "seconds": [seconds],
            "processor seconds": [used.ru_utime + used.ru_stime],
            "peak MiB": [used.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)],  # there it counts bytes
        }
    )


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)
