"""What a run's folder says of how far it is, read from another terminal while it goes on, or after it stopped."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from filelock import FileLock, Timeout

from harness.records.files import each_line
from harness.records.schema import ItemRecord
from harness.records.store import read_meta
from harness.runs.folder import LOCK
from harness.runs.progress import NAME, pace


def describe_status(folder: Path) -> str:
    """Responses recorded by suite, and whether the run goes on, how fast, and for how long. Raises UserError."""
    meta = read_meta(folder)
    methods, files = len(meta.config.methods), meta.data.get("files") or {}
    totals = {suite: methods * files.get(suite, {}).get("items", 0) for suite in meta.config.suites}
    done = Counter(row["suite"] for _, row in each_line(folder / "items.jsonl", ItemRecord))
    lines = [
        f"{meta.config.suites[suite].title or suite}: {done[suite]} of {total} responses"
        for suite, total in totals.items()
    ]
    left_out = len(meta.sessions[-1].get("left_out", [])) if meta.sessions else 0
    if left_out:
        lines.append(f"left out, because their workers died: {left_out}")
    return "\n".join([_state(folder, sum(done.values()) >= sum(totals.values())), *lines])


def _state(folder: Path, complete: bool) -> str:
    if held(folder):
        try:
            said = json.loads((folder / NAME).read_text(encoding="utf-8"))
            return f"goes on: {pace(said['per_second'], said['left_seconds'], said['workers'])} ({said['at']})"
        except (OSError, ValueError, KeyError, TypeError):  # not there yet, or decoding is over
            return "goes on: scoring and tables" if complete else "goes on: no speed is known yet"
    if complete:
        return "finished"
    return f"stopped; go on with the same options and --resume --out {folder}"


def held(folder: Path) -> bool:
    """Whether a process works on a run's folder."""
    if not (folder / LOCK).exists():
        return False
    try:
        with FileLock(folder / LOCK, timeout=0):
            return False
    except Timeout:
        return True
