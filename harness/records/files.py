"""Files of records: replaced in one step, appended to whole or not at all, read plain or packed."""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from harness.errors import UserError
from harness.records.schema import Line, what_is_wrong


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file's content in one step: temporary file, fsync, rename."""
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


def read_lines(path: Path, record: Line | None = None) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file; a torn last line is left out.

    Raises UserError naming the line if any other line is not a JSON object, or not such a `record`.
    """
    return [row for _, row in each_line(path, record)]


def each_line(path: Path, record: Line | None) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Every whole line of a JSON-lines file with its object, checked as `read_lines` says."""
    with opened(path) as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):  # torn by a kill
                return
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            wrong = "not a JSON object" if not isinstance(row, dict) else record and what_is_wrong(record, row)
            if wrong:
                raise UserError(f"{path}, line {number}: {wrong}; the record is damaged, repair or remove that line")
            yield line, row


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO | gzip.GzipFile]:
    """A JSON-lines file to read, plain or packed, empty if there is neither.

    Raises UserError if it cannot be unpacked.
    """
    packed = packed_of(path)
    if path.exists() or not packed.exists():
        with path.open("rb") if path.exists() else io.BytesIO() as file:
            yield file
        return
    try:
        with gzip.open(packed) as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{packed} is damaged: {error}") from error


def packed_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.gz")


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """A disk that is full, or a folder that cannot be written, as a UserError."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write to {folder}: {error.strerror}; what is finished is kept: make room and go on with --resume"
        ) from error


def as_lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def append(path: Path, rows: list[dict[str, Any]]) -> None:
    """Append whole lines, or none: what a full disk cut off is taken back."""
    if rows:
        append_bytes(path, as_lines(rows).encode())


def append_bytes(path: Path, added: bytes) -> None:
    with path.open("ab", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        content = memoryview(added)
        try:
            while content:
                content = content[file.write(content) :]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(size)
            raise
