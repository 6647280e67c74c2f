"""The tables of a GPU kit: what every part measured, formatted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pandas as pd

from harness.errors import UserError
from harness.records.kit import KitRecord
from tables.sheets.captions import INCOMPARABLE, UNCOMMITTED, machine
from tables.sheets.layout import Cell, Sheet, Table, number_text

SHOWN = 10  # responses that a caption names


class KitTable(NamedTuple):
    """How a table of some parts is printed.

    source: its name in the record. parts: how the names of its parts begin; what follows is the heading of a group of
    columns, unless `groups` names a column whose values are. label: the column that names the rows. columns: by name
    their heading and decimals. dtype: where it is not that of the record's environment. noted: whether the caption has
    the parts' notes.
    """

    name: str
    source: str
    parts: str
    label: str
    columns: dict[str, tuple[str, int]]
    caption: str
    rows: tuple[str, str] = ("Method", "Methods")
    groups: str | None = None
    dtype: str | None = None
    noted: bool = False


PASSES = ("Pass", "Passes")
RANDOM = "Random weights of the shape {arch}."
TABLES = (
    KitTable(
        "gpu-parity",
        "parity",
        "responses",
        "method",
        {
            "responses": ("Responses", 0),
            "equal": ("Equal", 0),
            "other costs": ("Other costs", 0),
            "ties": ("Ties", 0),
            "unlike": ("Unlike", 0),
        },
        "Responses of nano on this device against the golden records of a CPU: tokens, text and costs. Other costs: "
        "the golden tokens, where rounding orders drafts. A tie is proven: the golden response comes out where the "
        "logits are moved by the size of their rounding.",
        dtype="float32",
        noted=True,
    ),
    KitTable(
        "gpu-suites",
        "suites",
        "responses",
        "method",
        {"ms": ("ms", 1), "speedup, seconds": ("Speed", 2), "speedup, forwards": ("Fwd.", 2)},
        "Milliseconds of a response of nano, and speedups over LLaDA in seconds and in forwards. Responses were not "
        f"judged. Nano is {INCOMPARABLE}",
        groups="suite",
        dtype="float32",
    ),
    KitTable(
        "gpu-passes",
        "passes",
        "passes",
        "pass",
        {"ms": ("ms", 2), "plain forwards": ("x plain", 2)},
        f"Cost of passes, in milliseconds and in plain forwards of the same length. {RANDOM}",
        PASSES,
    ),
    KitTable(
        "gpu-memory",
        "memory",
        "memory",
        "pass",
        {"MB": ("MB", 0), "with weights": ("x plain", 2)},
        "Peak memory of passes above the weights, and in plain forwards with the weights counted on both sides. "
        f"{RANDOM}",
        PASSES,
    ),
    KitTable(
        "gpu-overhead",
        "overhead",
        "overhead",
        "method",
        {
            "forwards": ("Forwards", 1),
            "decoder, ms": ("Decoder ms", 1),
            "bare forwards, ms": ("Passes ms", 1),
            "overhead, %": ("Overhead %", 1),
        },
        "What decoders spend beyond their passes: a response of nano, and the calls of the model it made, replayed.",
    ),
    KitTable(
        "gpu-training",
        "training",
        "training",
        "objective",
        {
            "rows a batch": ("Rows", 1),
            "seconds a batch": ("s a batch", 3),
            "examples a second": ("Examples/s", 1),
            "tokens a second": ("Tokens/s", 0),
        },
        "Training of nano: forward and backward of a batch of {batch} examples, without the optimizer's step.",
        ("Objective", "Objectives"),
        dtype="bfloat16 (autocast)",
    ),
)


def kit_sheets(record: KitRecord) -> Iterator[Sheet]:
    """A sheet for every table of which a part is finished. Raises UserError if none is."""
    found = False
    for layout in TABLES:
        numbers = _numbers(record, layout)
        if len(numbers):
            found = True
            yield Sheet(_table(record, layout, numbers), numbers, with_latex=True)
    if not found:
        raise UserError("the kit's record has no finished part; run harness/gpu.py again")


def _numbers(record: KitRecord, layout: KitTable) -> pd.DataFrame:
    """The rows of all parts of a table, with the heading of the group that they belong to."""
    frames = []
    for name, part in record.parts.items():
        first, _, rest = name.partition(", ")
        if first == layout.parts:
            frame = pd.DataFrame(part.tables.get(layout.source, []))
            groups = [rest] * len(frame) if layout.groups is None else frame[layout.groups]
            named = [", ".join(filter(None, dict.fromkeys([group, rest]))) for group in groups]
            frames.append(frame.assign(group=named))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _table(record: KitRecord, layout: KitTable, numbers: pd.DataFrame) -> Table:
    rows = {(row["group"], row[layout.label]): row for row in numbers.to_dict("records")}
    labels, groups = (list(dict.fromkeys(keys)) for keys in ((key[1] for key in rows), (key[0] for key in rows)))
    cells = {
        (group, heading): [_cell(rows.get((group, label)), column, decimals) for label in labels]
        for group in groups
        for column, (heading, decimals) in layout.columns.items()
    }
    sizes = record.sizes
    sentences = [layout.caption.format(arch=sizes.arch, batch=sizes.batch), *_noted(record, layout)]
    environment = record.environment | ({} if layout.dtype is None else {"dtype": layout.dtype})
    torch = (environment.get("packages") or {}).get("torch")
    sentences.append(
        f"Environment: {', '.join(filter(None, [machine(environment), f'torch {torch}' if torch else '']))}."
    )
    sentences += [UNCOMMITTED] if environment.get("dirty") else []
    return Table(layout.name, " ".join(sentences), pd.DataFrame(cells, index=labels), rows=layout.rows)


def _cell(row: dict[Any, Any] | None, column: str, decimals: int) -> Cell:
    value = None if row is None else row.get(column)
    return Cell("-" if value is None else number_text(float(value), decimals))


def _noted(record: KitRecord, layout: KitTable) -> list[str]:
    """The parts' notes, as sentences; the first ones, where there are many."""
    if not layout.noted:
        return []
    parts = (part for name, part in record.parts.items() if name.partition(", ")[0] == layout.parts)
    notes = [note for part in parts for note in part.notes]
    more = [f"{len(notes) - SHOWN} more are named in kit.json."] if len(notes) > SHOWN else []
    return [f"{note}." for note in notes[:SHOWN]] + more
