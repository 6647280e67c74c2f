"""Records of a run: `run.json`, `items.jsonl`, `windows.jsonl` in one folder, written so that a
kill loses nothing.

    run.json       configuration and its hash, environment, weights, data, code, sessions, scoring
    items.jsonl    one object per (method, suite, item); `correct` comes with scoring
    windows.jsonl  one object per speculative window
    passes.jsonl   seconds of single passes, measured now and then
    traces.bin     of a traced run what every response did (harness/records/files.py)
    prompts.jsonl  of a traced run its prompts

An item's trace and windows are written before the item, which counts as done only when its line is
whole: after a kill, torn last lines, and windows, passes and traces without an item are dropped on
opening. What is read is checked against harness/records/schema.py. A finished run may be packed,
`gzip -9n *.jsonl`: it is read, but not written to.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from harness.errors import UserError, explained
from harness.records.consistency import KEY, check_run, of_items
from harness.records.files import (
    TRACES,
    TraceRecord,
    as_lines,
    decoder_of,
    each_frame,
    each_line,
    frame_of,
    opened,
    packed_of,
    read_lines,
)
from harness.records.schema import (
    ItemRecord,
    Key,
    Line,
    PassRecord,
    PromptRecord,
    RunConfig,
    RunRecord,
    WindowRecord,
)

# The key of a row.
key_of = itemgetter(*KEY)

# Fields of an item that come from its timing, and are replaced when it is timed again.
TIMED = (
    "seconds",
    "cpu_seconds",
    "waited_seconds",
    "device_seconds",
    "draw_seconds",
    "first_block_seconds",
    "content_seconds",
    "peak_bytes",
    "joules",
    "throttled",
    "disturbed",
    "worker",
)


@dataclass(frozen=True)
class Run:
    """A run as read.

    Attributes:
        folder: of the run.
        meta: run.json.
        items: items.jsonl, a row per line.
        windows: windows.jsonl, a row per line.
        passes: passes.jsonl, a row per line.
        speed: another run, of the same methods on some of the problems, from which the seconds are.
    """

    folder: Path
    meta: RunRecord
    items: pd.DataFrame
    windows: pd.DataFrame
    passes: pd.DataFrame = field(default_factory=pd.DataFrame)
    speed: Run | None = None

    @property
    def config(self) -> RunConfig:
        """The run's configuration."""
        return self.meta.config


def config_hash(config: RunConfig) -> str:
    """Sixteen hex digits of the SHA-256 of the configuration, independent of key order."""
    return _hash(config.to_json())


def _hash(config: Any) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file's content in one step: temporary file, fsync, rename.

    A reader, or a run after a kill, finds the old content or the new one, never a part.

    Args:
        path: of the file.
        content: text, written as UTF-8, or bytes.
    """
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def read_meta(folder: Path) -> RunRecord:
    """Read run.json of a run's folder.

    Raises:
        UserError: there is none, or it is damaged.
    """
    path = Path(folder) / "run.json"
    fields = _read_json(path)
    # A part that is null is as good as missing.
    if isinstance(fields, dict):
        fields = {name: value for name, value in fields.items() if value is not None}
    with explained(f"{path} is damaged", msgspec.ValidationError):
        record = msgspec.convert(fields, RunRecord)
    # Of the text, not of `record`: the hash is of what was written then.
    if "config_hash" in fields and record.config_hash != _hash(fields["config"]):
        _warn(
            f"{path}: the configuration was edited since the run, which had the hash"
            f" {record.config_hash}"
        )
    return record


@functools.cache
def _warn(line: str) -> None:
    """Print a line to stderr, each one once in a process: a run may be read several times."""
    print(line, file=sys.stderr)


def problems_of(meta: RunRecord, suite: str) -> str:
    """A name for a run's problems of a suite: "generated[-dev][:SEED]", the SHA-256 of their files,
    or "" if they are unknown. Equal names mean the same problems."""
    questions = meta.config.suites[suite].questions
    if isinstance(meta.config.data, str) and meta.config.data and questions is msgspec.UNSET:
        return meta.config.data
    return str(meta.files.get(suite, {}).get("sha256") or "")


def write_meta(folder: Path, parts: dict[str, Any]) -> None:
    """Set parts of run.json, which is created if need be.

    Args:
        folder: of the run.
        parts: by name; parts that are not named stay.

    Raises:
        UserError: it is damaged, or cannot be written.
    """
    path = folder / "run.json"
    before = _read_json(path) if path.exists() else {}
    with explained(f"cannot write to {folder}", OSError):
        write_atomically(path, json.dumps(before | parts, indent=1) + "\n")


def _read_json(path: Path) -> Any:
    if not path.exists():
        raise UserError(
            f"{path.parent} holds no run: run.json is missing; give a folder that harness/run.py"
            " wrote"
        )
    with explained(f"{path} is damaged", ValueError):
        return json.loads(path.read_bytes())


def read_run(folder: Path) -> Run:
    """Read a run's folder.

    Raises:
        UserError: there is no run, or it is damaged, or its records disagree.
    """
    folder = Path(folder)
    meta = read_meta(folder)
    items = _read_frame(folder / "items.jsonl", ItemRecord)
    passes = of_items(_read_frame(folder / "passes.jsonl", PassRecord), items)
    windows = of_items(_read_frame(folder / "windows.jsonl", WindowRecord), items)
    check_run(folder, meta, items, windows)
    return Run(folder, meta, items, windows, passes)


def _read_frame(path: Path, record: Line) -> pd.DataFrame:
    """The whole lines of a JSON-lines file as a frame, with a column for each field of `record`
    that any line has."""
    with opened(path) as file:
        content = file.read()
    try:
        # Without a last line that a kill tore.
        rows = decoder_of(record).decode_lines(content[: content.rfind(b"\n") + 1])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # Slower, line by line: this raises an error that names the line.
        read_lines(path, record)
        raise
    if not rows:
        return pd.DataFrame()
    frame = pd.DataFrame(
        {name: [getattr(row, name) for row in rows] for name in record.__struct_fields__}
    )
    # `correct` stays: of a run that is not scored yet all verdicts are missing.
    empty = frame.columns[frame.isna().all()]
    return frame.drop(columns=empty.difference(["correct"]))


class Recorder:
    """Appends finished items to a run's folder, each flushed to disk. Its process must have locked
    the folder (`harness.runs.folder.exclusive`).

    Args:
        folder: of the run.

    Attributes:
        items: the recorded items by key.
        pieces: by tokenizer, the tokens whose texts the traces have.

    Raises:
        UserError: the records are damaged, or cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pieces: dict[str, set[int]] = {}
        self._items, self._windows, self._passes = (
            folder / f"{name}.jsonl" for name in ("items", "windows", "passes")
        )
        for path in (self._items, self._windows, self._passes):
            if packed_of(path).exists():
                raise UserError(f"{folder} is packed; to go on with it: gunzip {folder}/*.jsonl.gz")
        self.items: dict[Key, dict[str, Any]] = {}
        self._timed_passes: set[Key] = set()
        for item in read_lines(self._items, ItemRecord):
            key = key_of(item)
            if key in self.items:
                raise UserError(
                    f"{self._items}: {' '.join(map(str, key))} is there twice; the record is"
                    " damaged"
                )
            self.items[key] = item
        # Rewritten once: this drops lines that a kill tore, and windows and passes without an item.
        self._write_items()
        self._drop_orphans(self._windows, WindowRecord)
        if self._passes.exists():
            self._timed_passes = self._drop_orphans(self._passes, PassRecord)
        if (folder / TRACES).exists():
            self._open_traces()

    def _write_items(self) -> None:
        with _writing(self.folder):
            write_atomically(self._items, as_lines(list(self.items.values())))

    def _drop_orphans(self, path: Path, record: Line) -> set[Key]:
        """Rewrite a file of windows or passes without rows that have no item. Returns the keys of
        the others."""
        lines = []
        keys = set()
        for line, row in each_line(path, record):
            if key_of(row) in self.items:
                lines.append(line)
                keys.add(key_of(row))
        with _writing(self.folder):
            write_atomically(path, b"".join(lines))
        return keys

    def done(self, method: str, suite: str, item: int) -> bool:
        """Whether this item is recorded and was timed without disturbance."""
        row = self.items.get((method, suite, item))
        return row is not None and not row.get("disturbed")

    def _open_traces(self) -> None:
        """Drop the traces without an item."""
        frames = []
        seen = set[Key]()
        path = self.folder / TRACES
        for frame, trace in each_frame(self.folder):
            if trace.key not in self.items:
                continue
            seen.add(trace.key)
            frames.append(frame)
            self._note_pieces(trace)
        # An item without a trace means a damaged file, which is left for the user to restore.
        if sum(map(len, frames)) != path.stat().st_size and seen >= self.items.keys():
            with _writing(self.folder):
                write_atomically(path, b"".join(frames))

    def write_prompts(self, prompts: list[PromptRecord]) -> None:
        """Write the prompts of the run's items."""
        with _writing(self.folder):
            write_atomically(
                self.folder / "prompts.jsonl",
                as_lines([msgspec.to_builtins(prompt) for prompt in prompts]),
            )

    def _note_pieces(self, trace: TraceRecord) -> None:
        self.pieces.setdefault(trace.tokenizer, set()).update(trace.pieces)

    def add(
        self, item: dict[str, Any], windows: list[dict[str, Any]], trace: TraceRecord | None = None
    ) -> None:
        """Record one finished item. If it is recorded already, it was timed again: its seconds are
        replaced if the new ones are better.

        Args:
            item: a line of items.jsonl.
            windows: lines of windows.jsonl.
            trace: in a traced run; texts of tokens that an earlier trace has are left out.

        Raises:
            UserError: the disk is full, or the folder cannot be written.
        """
        key = key_of(item)
        if key in self.items:
            self._retime(self.items[key], item)
            return
        # The item last: it counts as done when its line is whole, so that all else is there then.
        with _writing(self.folder):
            if trace is not None:
                known = self.pieces.get(trace.tokenizer, ())
                new = {token: text for token, text in trace.pieces.items() if token not in known}
                trace = msgspec.structs.replace(trace, pieces=new)
                _append_bytes(self.folder / TRACES, frame_of(trace))
                self._note_pieces(trace)
            _append(self._windows, windows)
            _append(self._items, [item])
        self.items[key] = item

    def _retime(self, before: dict[str, Any], now: dict[str, Any]) -> None:
        # Seconds of another response would not belong to the recorded text and costs.
        if now["tokens_hash"] != before["tokens_hash"]:
            return
        if now.get("disturbed") and now["seconds"] >= before["seconds"]:
            return
        for name in TIMED:
            before.pop(name, None)
            if name in now:
                before[name] = now[name]
        self._write_items()

    def add_passes(self, passes: dict[str, Any]) -> None:
        """Record seconds of single passes, unless this item has some already."""
        key = key_of(passes)
        if key in self._timed_passes:
            return
        self._timed_passes.add(key)
        with _writing(self.folder):
            _append(self._passes, [passes])

    def score(self, verdicts: dict[Key, tuple[bool, str]]) -> None:
        """Write verdicts into the items.

        Args:
            verdicts: by key whether the response is right, and the evaluator's reason or "".

        Raises:
            UserError: the folder cannot be written.
        """
        for key, (right, why) in verdicts.items():
            item = self.items[key]
            item["correct"] = right
            item.pop("why", None)
            # A field of older records, which would contradict the new verdict.
            item.pop("judged", None)
            if why:
                item["why"] = why
        self._write_items()


def _writing(folder: Path) -> AbstractContextManager[None]:
    """Raise UserError where the block fails to write, as on a full disk."""
    return explained(
        f"cannot write to {folder}",
        OSError,
        instead="what is finished is kept: make room and go on with --resume",
    )


def _append(path: Path, rows: list[dict[str, Any]]) -> None:
    """Append all rows as lines, or none."""
    if rows:
        _append_bytes(path, as_lines(rows).encode())


def _append_bytes(path: Path, added: bytes) -> None:
    # Unbuffered: Python would keep what a full disk refused, and write it later.
    with path.open("ab", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        content = memoryview(added)
        # One call may write a part alone.
        try:
            while content:
                content = content[file.write(content) :]
            os.fsync(file.fileno())
        # Without this, the next line would be appended to a torn one, and both be damaged.
        except OSError:
            file.truncate(size)
            raise
