"""The record of a GPU kit, `kit.json`: tables of what was measured on one machine, part by part.

It is written anew after every part, so that a kill loses the part in flight alone, and what is asked for again goes on
where it stopped. What is read is checked.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from harness.errors import UserError
from harness.records.schema import SCHEMA
from harness.records.store import write_atomically

NAME = "kit.json"
Rows = list[dict[str, Any]]


class KitSizes(Struct, frozen=True, kw_only=True):
    """How much is measured.

    arch: the shape of random weights. lengths: prompt and response of passes, in tokens. rows: of a forward. repeats:
    rounds of which the median is taken. problems, methods: of the golden records, by suite (methods None: all).
    response: tokens of a response whose decoder is measured beside its forwards. batch, steps: of training.
    """

    arch: str
    lengths: tuple[tuple[int, int], ...]
    rows: tuple[int, ...]
    repeats: int
    problems: int
    methods: tuple[str, ...] | None
    response: int
    batch: int
    steps: int


class KitPart(Struct, kw_only=True):
    """A finished part: its tables by name, what they say in words, and the machine when it began.

    seconds: how long the part took, loading and warming up included.
    """

    tables: dict[str, Rows]
    notes: list[str] = []
    seconds: float
    machine: dict[str, Any] = {}


class KitRecord(Struct, kw_only=True):
    """kit.json. environment: as run.json has it, with the dtype of passes at the shape of random weights."""

    schema: Literal[1] = 1
    kit: Literal["gpu"] = "gpu"
    created: str
    sizes: KitSizes
    environment: dict[str, Any]
    parts: dict[str, KitPart] = {}


def has_kit(folder: Path) -> bool:
    """Whether a folder holds the record of a kit."""
    return (Path(folder) / NAME).is_file()


def read_kit(folder: Path) -> KitRecord:
    """The record of a kit's folder. Raises UserError if it is damaged or of another schema."""
    path = Path(folder) / NAME
    try:
        read = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}") from error
    if isinstance(read, dict) and read.get("schema", SCHEMA) != SCHEMA:
        raise UserError(f"{path} has schema {read['schema']}; this version reads schema {SCHEMA}")
    try:
        return msgspec.convert(read, KitRecord)
    except msgspec.ValidationError as error:
        raise UserError(f"{path} is damaged: {error}") from error


def write_kit(folder: Path, record: KitRecord) -> None:
    """Write the record, in one step. Raises UserError if that cannot be done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / NAME, json.dumps(msgspec.to_builtins(record), indent=1) + "\n")
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}; choose another folder with --out") from error
