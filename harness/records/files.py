"""Files of a record: JSON lines, plain or packed, a torn last line left out; and SHA-256 of data and weights."""

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import model_wrappers
from harness.errors import UserError, explained
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
    with explained(f"{packed} is damaged", EOFError, zlib.error, gzip.BadGzipFile), gzip.open(packed) as file:
        yield file


def packed_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.gz")


def as_lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def whole_letters(line: bytes) -> bytes:
    """A line of JSON with the sign for no letter, U+FFFD, for every half of a surrogate pair that stands alone."""
    text = json.dumps(json.loads(line), ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")  # endings of files with weights
BESIDE = (".json", ".jinja", ".txt", ".model", ".py")  # and of those that say how to read and prompt a model


def file_hash(path: Path) -> str:
    """SHA-256 of a file, hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_hash(paths: list[Path]) -> str:
    """SHA-256 of a file, or of the names and hashes of several, hex."""
    if len(paths) == 1:
        return file_hash(paths[0])
    return hashlib.sha256("".join(f"{path.name} {file_hash(path)}\n" for path in paths).encode()).hexdigest()


@lru_cache
def nano_hashes() -> frozenset[str]:
    """SHA-256 of the weights that ship with this project: nano and its checkpoints."""
    sums = Path(model_wrappers.__file__).parent / "nano" / "SHA256SUMS"
    return frozenset(line.split()[0] for line in sums.read_text(encoding="utf-8").splitlines())


def model_hashes(folder: Path, endings: tuple[str, ...] = WEIGHTS) -> dict[str, str]:
    """SHA-256 of the files of a model's folder that have these endings, by name; empty where there are none.

    Weights may be many gigabytes: a file that has not changed is read once.
    """
    files = sorted(path for ending in endings for path in folder.glob(f"*{ending}"))
    return {path.name: _known_hash(path.resolve(), _version(path)) for path in files}


def _version(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


@lru_cache
def _known_hash(path: Path, version: tuple[int, int]) -> str:
    return file_hash(path)
