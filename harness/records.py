"""Records of a run: `run.json`, `items.jsonl`, `windows.jsonl` in one folder, written so that a kill loses nothing.

    run.json       {schema, name, created, config, config_hash, environment, weights, data, sittings, scoring}
    items.jsonl    one object per (method, suite, item), complete but for `correct`, which scoring adds
    windows.jsonl  one object per speculative window

An item's windows are written before the item itself, and an item counts as done only when its own line is whole: after
a kill, torn last lines and windows without an item are dropped on opening.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from harness.errors import UserError

SCHEMA = 1
KEY = ("method", "suite", "item")


@dataclass(frozen=True)
class Run:
    """A run as read: `meta` is run.json; items and windows are frames with one row per line."""

    folder: Path
    meta: dict[str, Any]
    items: pd.DataFrame
    windows: pd.DataFrame


def config_hash(config: dict[str, Any]) -> str:
    """Sixteen hex digits of the SHA-256 of the configuration, independent of key order."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


def write_atomically(path: Path, text: str) -> None:
    """Replace a file's content in one step: temporary file, fsync, rename."""
    temporary = path.with_name(f".{path.name}.part")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file; a torn last line is left out.

    Raises UserError naming the line if any other line is not a JSON object.
    """
    if not path.exists():
        return []
    raw = path.read_bytes().split(b"\n")
    rows = []
    for number, line in enumerate(raw, 1):
        if number == len(raw):  # after the last newline: nothing, or a line torn by a kill
            break
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise UserError(
                f"{path}, line {number}: not a JSON object; the record is damaged, repair or remove that line"
            )
        rows.append(row)
    return rows


def read_run(folder: Path) -> Run:
    """Read a run's folder. Raises UserError if it is none, or damaged."""
    path = Path(folder) / "run.json"
    if not path.exists():
        raise UserError(f"{folder} holds no run: run.json is missing; give a folder that harness/run.py wrote")
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
        schema = meta["schema"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged: {error}") from error
    if schema != SCHEMA:
        raise UserError(f"{path} has schema {schema}; this version reads schema {SCHEMA}")
    items = read_lines(Path(folder) / "items.jsonl")
    lost = [name for name in KEY if any(name not in item for item in items)]
    if lost:
        raise UserError(f"{folder}/items.jsonl: items without {', '.join(lost)}; the record is damaged")
    seen = set()
    for item in items:
        key = tuple(item[name] for name in KEY)
        if key in seen:
            raise UserError(
                f"{folder}/items.jsonl: {' '.join(map(str, key))} stands there twice; the record is damaged"
            )
        seen.add(key)
    return Run(Path(folder), meta, pd.DataFrame(items), pd.DataFrame(read_lines(Path(folder) / "windows.jsonl")))


class Recorder:
    """Appends finished items to a run's folder, flushed to disk one by one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._items, self._windows = folder / "items.jsonl", folder / "windows.jsonl"
        self.items = {tuple(item[name] for name in KEY): item for item in read_lines(self._items)}
        windows = [w for w in read_lines(self._windows) if tuple(w[name] for name in KEY) in self.items]
        # Rewritten once on opening: what a kill tore off, or left without its item, goes.
        write_atomically(self._items, _lines(list(self.items.values())))
        write_atomically(self._windows, _lines(windows))

    def done(self, method: str, suite: str, item: int) -> bool:
        """Whether this item is recorded."""
        return (method, suite, item) in self.items

    def add(self, item: dict[str, Any], windows: list[dict[str, Any]]) -> None:
        """Record one finished item and its windows."""
        _append(self._windows, windows)
        _append(self._items, [item])
        self.items[tuple(item[name] for name in KEY)] = item

    def score(self, correct: dict[tuple[str, str, int], bool | None]) -> None:
        """Write the verdicts into the items; None where an item was not scored."""
        for key, verdict in correct.items():
            self.items[key]["correct"] = verdict
        write_atomically(self._items, _lines(list(self.items.values())))


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _append(path: Path, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    with path.open("a", encoding="utf-8") as file:
        file.write(_lines(rows))
        file.flush()
        os.fsync(file.fileno())
