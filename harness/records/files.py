"""Files of a record: JSON lines, plain or packed, and traces; and SHA-256 of data and weights.

traces.bin has what every response of a traced run did, event by event, in the columns of
model_wrappers/trace.py. A frame is four bytes, the length of what follows, and the zlib-compressed
msgpack of one response. A torn last line or frame is left out; a damaged one is refused.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import io
import json
import sys
import zlib
from collections.abc import Collection, Iterator
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
from harness.records.schema import Key, Line, PromptRecord, what_is_wrong
from model_wrappers.trace import NUMBER, EventLog


def read_lines(path: Path, record: Line | None = None) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file, a torn last line left out. Raises UserError, naming any
    other that is wrong."""
    return [row for _, row in each_line(path, record)]


def each_line(path: Path, record: Line | None) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Every whole line of a JSON-lines file, without its end, and its object, checked as
    `read_lines` says."""
    number = 0
    with opened(path) as file:
        for piece in pieces_of(file):
            for line in piece:
                number += 1
                try:
                    row = json.loads(line)
                    wrong = record and what_is_wrong(record, row)
                except ValueError as error:
                    wrong = f"not JSON ({error})"
                if wrong:
                    raise UserError(
                        f"{path}, line {number}: {wrong}; the record is damaged, repair or remove"
                        " that line"
                    )
                yield line, row


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO | gzip.GzipFile]:
    """A JSON-lines file to read, plain or packed, empty if there is neither. Raises UserError if it
    is damaged."""
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


PIECE = 1 << 24  # bytes of lines that are read at a time


def pieces_of(file: BinaryIO | gzip.GzipFile) -> Iterator[list[bytes]]:
    """The lines of an opened file in pieces, without blank ones and without a last one that a kill
    tore."""
    torn = b""
    while read := file.read(PIECE):
        *lines, torn = (torn + read).split(b"\n")
        yield [line for line in lines if line.strip()]


def packed_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.gz")


def as_lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")  # endings of files with weights
# and of those that say how to read and prompt a model
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
    """SHA-256 of a file, or of the names and hashes of several, hex."""
    if len(paths) == 1:
        return file_hash(paths[0])
    return hashlib.sha256(
        "".join(f"{path.name} {file_hash(path)}\n" for path in paths).encode()
    ).hexdigest()


def ships(model: dict[str, Any]) -> bool:
    """Whether a record's model is one that ships with this project: nano or a checkpoint of it,
    read as they are.

    By the hashes of its files, for a name may stand for anything; an older record has those of
    weights alone.
    """
    nano = Path(model_wrappers.__file__).parent / "nano"
    lines = (nano / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    folders = {digest: (nano / name).parent for digest, name in map(str.split, lines)}
    weights = [*(model.get("sha256") or {}).values()]
    if not weights or "adapter" in model or not all(digest in folders for digest in weights):
        return False
    own = model_hashes(folders[weights[0]], BESIDE)
    return all(
        own.get(name, digest) == digest for name, digest in (model.get("files") or {}).items()
    )


def model_hashes(folder: Path, endings: tuple[str, ...] = WEIGHTS) -> dict[str, str]:
    """SHA-256 of the files of a model's folder with these endings, by name; unchanged files are
    read once."""
    files = sorted(path for ending in endings for path in folder.glob(f"*{ending}"))
    return {path.name: _known_hash(path.resolve(), _version(path)) for path in files}


def _version(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


@lru_cache
def _known_hash(path: Path, version: tuple[int, int]) -> str:
    return file_hash(path)


TRACES = "traces.bin"
HEADER = 4  # bytes that say how long a frame is, the lowest first
# The numbers of a column, the lowest byte first.
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
COMMITS = tuple(
    NUMBER[kind] for kind in ("unmasked", "accepted", "known", "corrected", "drawn", "filled")
)
ACCEPTED = (NUMBER["accepted"], NUMBER["known"])
REFUSED = (NUMBER["rejected"], NUMBER["discarded"])
Numbers = npt.NDArray[Any]


class TraceRecord(Struct, kw_only=True):
    """What one response did. length: its tokens; mask: the id that it was full of at first; ends:
    ids of EOS and EoT.

    tokenizer: the model whose tokens these are; pieces: the texts of those that no earlier frame of
    it has. columns: the events, as COLUMNS says.
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

    def without(self, known: Collection[int]) -> TraceRecord:
        """The record less the texts of these tokens."""
        new = {token: text for token, text in self.pieces.items() if token not in known}
        return msgspec.structs.replace(self, pieces=new)

    @property
    def key(self) -> Key:
        """Whose response it is."""
        return self.method, self.suite, self.item

    def column(self, name: str) -> Numbers:
        """A column's numbers, (events,); of target_prob one for each draft that was not
        accepted."""
        return np.frombuffer(self.columns[name], COLUMNS[name])


def packed_columns(log: EventLog) -> dict[str, bytes]:
    """The columns of a log as a record has them."""
    return {name: np.asarray(values, COLUMNS[name]).tobytes() for name, values in log.columns()}


def frame_of(record: TraceRecord) -> bytes:
    """A response as a frame."""
    body = zlib.compress(msgspec.msgpack.encode(record))
    return len(body).to_bytes(HEADER, "little") + body


def each_frame(folder: Path) -> Iterator[tuple[bytes, TraceRecord]]:
    """Every whole frame of a run's traces, with what it says; none without any. Raises UserError
    for a damaged one."""
    path = Path(folder) / TRACES
    if not path.exists():
        return
    decoder = msgspec.msgpack.Decoder(TraceRecord)
    with path.open("rb") as file:
        number = 0
        while len(header := file.read(HEADER)) == HEADER:
            size = int.from_bytes(header, "little")
            body = file.read(size)
            if len(body) < size:  # torn by a kill
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
    """The tokens of the response after all its events, (length,)."""
    tokens = np.full(record.length, record.mask, np.int64)
    changes = ~np.isin(record.column("kind"), REFUSED)
    # Of several at one position numpy keeps the last, which is the one that holds.
    tokens[record.column("position")[changes]] = record.column("token")[changes]
    return tokens


def read_prompts(folder: Path) -> dict[tuple[str, int], str]:
    """The prompts of a traced run by suite and item, {} where it has none. Raises UserError if they
    are damaged."""
    rows = read_lines(Path(folder) / "prompts.jsonl", PromptRecord)
    return {(row["suite"], row["item"]): row["prompt"] for row in rows}


def code_hash(path: Path) -> str:
    """SHA-256 of a Python file with what it imports from its folder, as `with_helpers` has them."""
    return files_hash(with_helpers(path))


def with_helpers(path: Path) -> list[Path]:
    """A Python file, and the files of its folder that it imports, and they in turn; an installed
    file comes alone."""
    found = [path]
    if path.parent.name in ("site-packages", "dist-packages"):
        return found
    for file in found:
        for name in sorted(_imports_of(file)):
            loaded = getattr(sys.modules.get(name), "__file__", None)
            # that is what the name stands for
            if loaded is not None and path.parent not in Path(loaded).parents:
                continue
            package = path.parent / name
            files = [path.parent / f"{name}.py"]
            files += sorted(package.rglob("*.py")) if (package / "__init__.py").is_file() else []
            found += [each for each in files if each.is_file() and each not in found]
    return found


def _imports_of(path: Path) -> set[str]:
    """The packages that a Python file imports; none of one that is no Python."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # importing it says what is wrong
        return set()
    modules = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.append(node.module)
    return {module.partition(".")[0] for module in modules}
