"""Files of a record: JSON lines, plain or gzipped, and traces; and SHA-256 of data and weights.

traces.bin has the events of every response of a traced run, in the columns of
model_wrappers/trace.py. It is a sequence of frames. A frame is one response as zlib-compressed
msgpack, after four bytes with its length. A last line or frame that a kill tore is left out; a
damaged one is refused.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import io
import json
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

import model_wrappers
from harness.errors import UserError, explained
from harness.records.schema import Key, Line, PromptRecord
from model_wrappers.trace import NUMBER, EventLog


def read_lines(path: Path, record: Line | type[dict] = dict) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file, without a torn last line.

    Args:
        path: of the file, which may be gzipped or missing.
        record: what every line is checked against.

    Raises:
        UserError: a line is wrong; the message has its number.
    """
    return [row for _, row in each_line(path, record)]


def each_line(path: Path, record: Line | type[dict]) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Every whole line of a JSON-lines file that is not blank, and its object. Checked as by
    `read_lines`."""
    decoder = decoder_of(record)
    with opened(path) as file:
        for number, line in enumerate(file, 1):
            # A last line without an end was torn by a kill.
            if not line.endswith(b"\n") or not line.strip():
                continue
            try:
                decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise UserError(
                    f"{path}, line {number}: {error}; the record is damaged, repair or remove that"
                    " line"
                ) from error
            yield line, json.loads(line)


def decoder_of(record: Line | type[dict]) -> msgspec.json.Decoder[Any]:
    """The decoder of lines of a file, which checks them."""
    # Not strict: pandas writes 4.0 for the integer 4.
    return msgspec.json.Decoder(record, strict=False)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO | gzip.GzipFile]:
    """Open a JSON-lines file, or else its gzipped copy; an empty file if there is neither.

    Raises:
        UserError: the gzipped file is damaged.
    """
    packed = packed_of(path)
    if path.exists() or not packed.exists():
        with path.open("rb") if path.exists() else io.BytesIO() as file:
            yield file
        return
    with (
        explained(f"{packed} is damaged", EOFError, zlib.error, gzip.BadGzipFile),
        gzip.open(packed) as file,
    ):
        yield file


def packed_of(path: Path) -> Path:
    """The gzipped copy of a file."""
    return path.with_name(f"{path.name}.gz")


def as_lines(rows: list[dict[str, Any]]) -> str:
    """Rows as JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in rows)


# Endings of files with weights.
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")
# Endings of the other files of a model: configuration, tokenizer, chat template, code.
BESIDE = (
    ".json",
    ".jinja",
    ".txt",
    ".model",
    ".py",
)


def file_hash(path: Path) -> str:
    """SHA-256 of a file, hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_hash(paths: list[Path]) -> str:
    """SHA-256 of a file, or of the names and hashes of several files, hex."""
    if len(paths) == 1:
        return file_hash(paths[0])
    return hashlib.sha256(
        "".join(f"{path.name} {file_hash(path)}\n" for path in paths).encode()
    ).hexdigest()


def ships(model: dict[str, Any]) -> bool:
    """Whether a record's model ships with this project: nano or a checkpoint of it, unchanged.

    Args:
        model: of `weights` in run.json.
    """
    # By the hashes of its files, for a folder of any model may have such a name.
    nano = Path(model_wrappers.__file__).parent / "nano"
    lines = (nano / "SHA256SUMS").read_text("utf-8").splitlines()
    folders = {digest: (nano / name).parent for digest, name in map(str.split, lines)}
    weights = [*(model.get("sha256") or {}).values()]
    if not weights or "adapter" in model or not all(digest in folders for digest in weights):
        return False
    shipped = model_hashes(folders[weights[0]], BESIDE)
    # An older record has hashes of weights alone.
    recorded = model.get("files") or {}
    return all(shipped.get(name, digest) == digest for name, digest in recorded.items())


def model_hashes(folder: Path, endings: tuple[str, ...] = WEIGHTS) -> dict[str, str]:
    """SHA-256 of the files with these endings in a model's folder, by name. A file that has not
    changed is read once in a process."""
    files = sorted(path for ending in endings for path in folder.glob(f"*{ending}"))
    return {path.name: _known_hash(path.resolve(), _version(path)) for path in files}


def _version(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


@lru_cache
def _known_hash(path: Path, version: tuple[int, int]) -> str:
    # `version` is a part of the cache's key: a file that was replaced is read again.
    return file_hash(path)


TRACES = "traces.bin"
# Bytes of a frame's length, little-endian.
HEADER = 4
# numpy's dtypes of the columns, little-endian on every machine.
COLUMNS = {
    "kind": "<u1",
    "forward": "<u4",
    "step": "<u2",
    "window": "<i4",
    "position": "<u4",
    "token": "<u4",
    "prob": "<f4",
    "target_prob": "<f4",
}
# Numbers of the kinds of events that put nothing at a position.
REFUSED = (NUMBER["rejected"], NUMBER["discarded"])
Numbers = npt.NDArray[Any]


class TraceRecord(Struct, kw_only=True):
    """The events of one response.

    Attributes:
        method, suite, item: the response's key.
        length: tokens of the response.
        mask: the id of the mask, which fills the response at first.
        ends: ids of EOS and EoT.
        tokenizer: the name of the model whose tokens these are.
        pieces: texts of tokens by id, without those that an earlier frame of this tokenizer has.
        columns: the events, each column packed as COLUMNS says.
    """

    method: str
    suite: str
    item: Annotated[int, Meta(ge=0)]
    length: Annotated[int, Meta(ge=1)]
    mask: int
    schema: Literal[1] = 1
    ends: list[int] = []
    tokenizer: str = ""
    pieces: dict[int, str] = {}
    columns: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return (
            f"TraceRecord of {self.method} on {self.suite}, item {self.item}: {self.length} tokens"
        )

    @property
    def key(self) -> Key:
        """Method, suite and item."""
        return self.method, self.suite, self.item

    def column(self, name: str) -> Numbers:
        """A column's numbers, (events,); target_prob has one for each draft that was not
        accepted."""
        return np.frombuffer(self.columns[name], COLUMNS[name])


def packed_columns(log: EventLog) -> dict[str, bytes]:
    """The columns of a log, packed for a record."""
    return {name: np.asarray(values, COLUMNS[name]).tobytes() for name, values in log.columns()}


def frame_of(record: TraceRecord) -> bytes:
    """A response as a frame of traces.bin."""
    body = zlib.compress(msgspec.msgpack.encode(record))
    return len(body).to_bytes(HEADER, "little") + body


def each_frame(folder: Path) -> Iterator[tuple[bytes, TraceRecord]]:
    """Every whole frame of a run's traces.bin, with its record. Without a file there is none.

    Raises:
        UserError: a frame is damaged.
    """
    path = Path(folder) / TRACES
    if not path.exists():
        return
    decoder = msgspec.msgpack.Decoder(TraceRecord)
    with path.open("rb") as file:
        number = 0
        while len(header := file.read(HEADER)) == HEADER:
            size = int.from_bytes(header, "little")
            body = file.read(size)
            # The last frame was torn by a kill.
            if len(body) < size:
                return
            number += 1
            with explained(
                f"{path}, frame {number}",
                zlib.error,
                msgspec.MsgspecError,
                ValueError,
                instead=(
                    f"the trace is damaged: restore it, or delete {TRACES} and go without traces"
                ),
            ):
                record = decoder.decode(zlib.decompress(body))
            yield header + body, record


def replay(record: TraceRecord) -> npt.NDArray[np.int64]:
    """The tokens of a response after all its events, (length,)."""
    tokens = np.full(record.length, record.mask, np.int64)
    changes = ~np.isin(record.column("kind"), REFUSED)
    # A position may occur several times, where it was re-masked: numpy keeps the last token.
    tokens[record.column("position")[changes]] = record.column("token")[changes]
    return tokens


def read_prompts(folder: Path) -> dict[tuple[str, int], str]:
    """The prompts of a traced run by suite and item; {} if it has none.

    Raises:
        UserError: the file is damaged.
    """
    rows = read_lines(Path(folder) / "prompts.jsonl", PromptRecord)
    return {(row["suite"], row["item"]): row["prompt"] for row in rows}


def code_hash(path: Path) -> str:
    """SHA-256 of a Python file and of the files that `with_helpers` adds to it."""
    return files_hash(with_helpers(path))


def with_helpers(path: Path) -> list[Path]:
    """A Python file, and the files of its folder that it imports, directly or through others. An
    installed file is returned alone."""
    files = [path]
    # Neighbours in site-packages are other packages, not helpers.
    if path.parent.name in ("site-packages", "dist-packages"):
        return files
    # The list grows while it is read, so that imports of imports follow.
    for file in files:
        for name in sorted(_imports_of(file)):
            loaded = getattr(sys.modules.get(name), "__file__", None)
            # The name stands for a module from elsewhere, whatever lies in this folder.
            if loaded is not None and path.parent not in Path(loaded).parents:
                continue
            package = path.parent / name
            helpers = [path.parent / f"{name}.py"]
            if (package / "__init__.py").is_file():
                helpers += sorted(package.rglob("*.py"))
            files += [helper for helper in helpers if helper.is_file() and helper not in files]
    return files


def _imports_of(path: Path) -> set[str]:
    """The top-level names that a Python file imports; none if it is not Python."""
    try:
        tree = ast.parse(path.read_bytes())
    # Importing the file will say what is wrong.
    except (SyntaxError, ValueError):
        return set()
    modules = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.append(node.module)
    return {module.partition(".")[0] for module in modules}
