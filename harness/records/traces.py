"""traces.bin: what every response of a traced run did, event by event, in the columns of model_wrappers/trace.py.

A frame is four bytes, the length of what follows, and the zlib-compressed msgpack of one response. It is appended like
the lines of the other records, before its item. A torn last frame is left out; a damaged one is refused.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from harness.errors import explained
from harness.records.files import read_lines
from harness.records.schema import PromptRecord
from model_wrappers.trace import KINDS, NO_WINDOW, NUMBER, EventLog

NAME = "traces.bin"
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
COMMITS = tuple(NUMBER[kind] for kind in ("unmasked", "accepted", "known", "corrected", "drawn", "filled"))
ACCEPTED = (NUMBER["accepted"], NUMBER["known"])
REFUSED = (NUMBER["rejected"], NUMBER["discarded"])
Numbers = npt.NDArray[Any]


class TraceRecord(Struct, kw_only=True):
    """What one response did. length: its tokens; mask: the id that it was full of at first; ends: ids of EOS and EoT.

    tokenizer: the model whose tokens these are; pieces: the texts of those that no earlier frame of it has. columns:
    the events, as COLUMNS says.
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

    def without(self, known: Collection[int]) -> TraceRecord:
        """The record less the texts of these tokens."""
        new = {token: text for token, text in self.pieces.items() if token not in known}
        return msgspec.structs.replace(self, pieces=new)

    @property
    def key(self) -> tuple[str, str, int]:
        """Whose response it is."""
        return self.method, self.suite, self.item

    def column(self, name: str) -> Numbers:
        """A column's numbers, (events,); of target_prob one for each draft that was not accepted."""
        return np.frombuffer(self.columns[name], COLUMNS[name])


def packed_columns(log: EventLog) -> dict[str, bytes]:
    """The columns of a log as a record has them."""
    return {name: np.asarray(values, COLUMNS[name]).tobytes() for name, values in log.columns()}


def frame_of(record: TraceRecord) -> bytes:
    """A response as a frame."""
    body = zlib.compress(msgspec.msgpack.encode(record))
    return len(body).to_bytes(HEADER, "little") + body


def each_frame(folder: Path) -> Iterator[tuple[bytes, TraceRecord]]:
    """Every whole frame of a run's traces with what it says, in their order; none where there are no traces.

    Raises UserError, naming the frame, if one is damaged.
    """
    path = Path(folder) / NAME
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
                instead=f"the trace is damaged: restore it, or delete {NAME} and go without traces",
            ):
                record = decoder.decode(zlib.decompress(body))
                _check(record)
            yield header + body, record


def _check(record: TraceRecord) -> None:
    """Raise ValueError unless the columns are there, have one length and hold what they may."""
    missing = [name for name in COLUMNS if name not in record.columns]
    if missing:
        raise ValueError(f"column {missing[0]} is missing")
    kinds = record.column("kind")
    refused = int(np.isin(kinds, REFUSED).sum())
    for name in COLUMNS:
        wanted = refused if name == "target_prob" else len(kinds)
        if len(record.column(name)) != wanted:
            raise ValueError(f"column {name} has {len(record.column(name))} numbers, not {wanted}")
    if len(kinds) and (kinds.max() >= len(KINDS) or record.column("position").max() >= record.length):
        raise ValueError("an event is of no known kind, or lies outside the response")


def replay(record: TraceRecord) -> npt.NDArray[np.int64]:
    """The tokens of the response after all its events, (length,)."""
    tokens = np.full(record.length, record.mask, np.int64)
    changes = ~np.isin(record.column("kind"), REFUSED)
    # Of several at one position numpy keeps the last, which is the one that holds.
    tokens[record.column("position")[changes]] = record.column("token")[changes]
    return tokens


def window_sums(record: TraceRecord) -> dict[str, Numbers]:
    """proposed, accepted and committed of every window, (windows,), counted from the events."""
    kinds, windows = record.column("kind"), record.column("window")
    count = int(windows.max()) + 1 if len(windows) else 0

    def counted(*wanted: int) -> Numbers:
        return np.bincount(windows[np.isin(kinds, wanted) & (windows != NO_WINDOW)], minlength=count)

    return {"proposed": counted(*ACCEPTED, *REFUSED), "accepted": counted(*ACCEPTED), "committed": counted(*COMMITS)}


def read_prompts(folder: Path) -> dict[tuple[str, int], str]:
    """The prompts of a traced run by suite and item, {} where it has none. Raises UserError if they are damaged."""
    rows = read_lines(Path(folder) / "prompts.jsonl", PromptRecord)
    return {(row["suite"], row["item"]): row["prompt"] for row in rows}
