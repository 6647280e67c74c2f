"""What records cost: adding one to a run while it decodes, and those of a large run: written, opened, read, rendered.

Both use the records of a real run: they are added again to an empty run, and repeated under new item numbers.
"""

import json
import math
import os
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
ITEMS, WINDOWS = 70_000, 1_600_000  # 7,000 items by 10 methods; 256 tokens, half of the methods with windows
ADDED = 500
Lines = list[dict[str, Any]]


def bench_recording(folder: Path, items: int = ITEMS, windows: int = WINDOWS) -> dict[str, pd.DataFrame]:
    """The tables `recording` and `size`.

    recording: milliseconds to add an item with its windows, each flushed to disk, the mean of the first ADDED; and that
    in percent of the mean seconds of a response of each method that the run has. size: seconds to write the run, over
    and over until it has `items` items and, if it has any, `windows` windows, to open it to go on with it, and to read
    it and make its tables, each in a process of its own, with seconds of processor time and peak memory in MiB. Raises
    UserError if `folder` holds no run with seconds of items, or the tables cannot be made.
    """
    run = read_run(folder)
    if "seconds" not in run.items:
        raise UserError(f"{folder} has no items with seconds; give the folder of a run that has")
    lines, drafted = read_lines(folder / "items.jsonl"), read_lines(folder / "windows.jsonl")
    copies = max(math.ceil(items / len(lines)), math.ceil(windows / len(drafted)) if drafted else 1)
    with tempfile.TemporaryDirectory() as scratch:
        return {
            "recording": _recording(run, lines, drafted, Path(scratch) / "added"),
            "size": _size(folder, lines, drafted, Path(scratch) / "many", copies),
        }


def _recording(run: Run, lines: Lines, windows: Lines, folder: Path) -> pd.DataFrame:
    folder.mkdir()
    recorder = Recorder(folder)
    of_item = _by_item(windows)
    added = [(line, of_item.get(_key(line), [])) for line in lines[:ADDED]]
    began = time.perf_counter()
    for line, own in added:
        recorder.add(line, own)
    each = (time.perf_counter() - began) / len(added)
    responses = run.items.groupby("method", sort=False)["seconds"].mean()
    return pd.DataFrame(
        {"method": responses.index, "ms an item": 1e3 * each, "% of decoding": (100 * each / responses).to_list()}
    )


def _size(source: Path, lines: Lines, windows: Lines, folder: Path, copies: int) -> pd.DataFrame:
    """What the records of a large run cost: to be written, opened to go on with, read and made tables of."""
    folder.mkdir()
    step = 1 + max(line["item"] for line in lines)
    _write_meta(source, folder, copies * step)
    this = [sys.executable, "-m", "harness.costs.recording"]
    steps = {
        "written": [*this, "write", str(source), str(folder), str(copies)],
        "opened again": [*this, "open", str(folder)],
        "read and tables": [sys.executable, str(ROOT / "tables" / "render.py"), str(folder)],
    }
    rows = [{"step": step, **_measured(command, source, copies)} for step, command in steps.items()]
    table = pd.DataFrame(rows)
    table.insert(1, "items", copies * len(lines))
    table.insert(2, "windows", copies * len(windows))
    return table


def _write_meta(source: Path, folder: Path, items: int) -> None:
    """run.json of a run with so many items of every suite."""
    meta = json.loads((source / "run.json").read_text(encoding="utf-8"))
    meta.pop("config_hash", None)
    meta.get("config", {}).pop("limit", None)
    for file in (meta.get("data") or {}).get("files", {}).values():
        file["items"] = items
    (folder / "run.json").write_text(json.dumps(meta))


def _measured(command: list[str], source: Path, copies: int) -> dict[str, float]:
    """A command in a process of its own: seconds, seconds of processor time, and peak memory. Raises UserError."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)
    _, status, used = os.wait4(process.pid, 0)  # unlike getrusage, it counts this one child only
    seconds, process.returncode = time.perf_counter() - began, os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise UserError(f"records of {source}, {copies} times over, cannot be used so; see the message above")
    return {
        "seconds": seconds,
        "processor seconds": used.ru_utime + used.ru_stime,
        "peak MiB": used.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10),  # there it counts bytes
    }


def write_many(source: Path, folder: Path, copies: int) -> None:
    """Record the items of a run again, with their windows, `copies` times over under new item numbers."""
    recorder = Recorder(folder)
    lines = read_lines(source / "items.jsonl")
    of_item = _by_item(read_lines(source / "windows.jsonl"))
    step = 1 + max(line["item"] for line in lines)
    for copy in range(copies):
        for line in lines:
            moved = {"item": line["item"] + copy * step}
            recorder.add(line | moved, [window | moved for window in of_item.get(_key(line), [])])


def _by_item(windows: Lines) -> dict[tuple[Any, ...], Lines]:
    of_item: dict[tuple[Any, ...], Lines] = {}
    for window in windows:
        of_item.setdefault(_key(window), []).append(window)
    return of_item


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


if __name__ == "__main__":
    _, what, *given = sys.argv
    if what == "write":
        write_many(Path(given[0]), Path(given[1]), int(given[2]))
    else:
        Recorder(Path(given[0]))
