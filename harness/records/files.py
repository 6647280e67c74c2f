"""Reading JSON-lines files, plain or packed, a torn last line left out."""

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from harness.errors import UserError
from harness.records.schema import Line, what_is_wrong


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


def as_lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def whole_letters(line: bytes) -> bytes:
    """A line of JSON with the sign for no letter, U+FFFD, for every half of a surrogate pair that stands alone."""
    text = json.dumps(json.loads(line), ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
