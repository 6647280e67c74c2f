"""A table as data: columns, rows of cells, marks, and the run card."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, groupby
from statistics import stdev
from typing import Any

import pandas as pd

from harness.measures.card import Card
from harness.measures.marks import MARKS

NO_NUMBER = "-"
BEST = "_best"  # the end of the name of a column that says which numbers are best


@dataclass(frozen=True)
class Column:
    """A column: where its numbers are in a frame, and how they are printed.

    Attributes:
        name: the frame's column of the numbers.
        heading: printed above them, below `group`.
        group: a title that several columns share.
        decimals, unit: of the printed numbers.
        scale: a factor that numbers are multiplied by.
        sign: "+" prints a sign before positive numbers, too.
        emphasis: "bold" or "underline", of the best row.
        competes: the frame's column that says which rows may be the best.
        marks: the frame's column of letters.
        suite: whose numbers these are, in a table with several suites in a row.
        ends: decimals of intervals; None for no intervals.
        below: the frame's column of texts that stand below the interval.
        spread: the frame's column of values whose standard deviation is printed after the number.
    """

    name: str
    heading: str
    group: str = ""
    decimals: int = 2
    unit: str = ""
    scale: float = 1.0
    sign: str = ""
    emphasis: str = ""
    competes: str = ""
    marks: str = ""
    suite: str = ""
    ends: int | None = None
    below: str = ""
    spread: str = ""


@dataclass(frozen=True)
class Cell:
    """One cell: its text and number, its emphasis, the letters of its marks, two texts below it."""

    text: str
    value: float | None = None
    emphasis: str = ""
    marks: str = ""
    below: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class Row:
    """A row: its key in the frame, its label, and a cell for each column."""

    key: str
    label: str
    cells: Sequence[Cell]


@dataclass(frozen=True)
class Table:
    """A table to be written.

    Attributes:
        name: of its files.
        caption: one sentence.
        columns, rows: what is printed.
        card: the run card.
        numbers: the frame that is written as CSV.
        heading: above the rows' labels.
        below: labels of the two lines below a row's numbers.
    """

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    card: Card = field(default_factory=dict)
    numbers: pd.DataFrame = field(default_factory=pd.DataFrame)
    heading: str = "Method"
    below: tuple[str, str] = ("95% interval", "p vs LLaDA (Holm)")

    @property
    def marks(self) -> dict[str, str]:
        """The meaning of each mark that the table has."""
        used = {letter for row in self.rows for cell in row.cells for letter in cell.marks}
        return {letter: meaning for letter, meaning in MARKS.items() if letter in used}

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The titles above the columns, each with the number of columns that share it."""
        titles = groupby(column.group for column in self.columns)
        return [(title, len(list(same))) for title, same in titles]

    def lines(self) -> list[tuple[str, Sequence[Cell], bool]]:
        """The printed lines: a label, cells, and whether the line belongs to the row above."""
        lines: list[tuple[str, Sequence[Cell], bool]] = []
        for row in self.rows:
            lines.append((row.label, row.cells, False))
            for place, label in enumerate(self.below):
                texts = [cell.below[place] for cell in row.cells]
                if any(texts):
                    lines.append((label, [Cell(text) for text in texts], True))
        return lines

    def of_group(self, group: str) -> "Table":
        """The table with only the columns of one group, and those without a group."""
        selected = [column.group in ("", group) for column in self.columns]
        columns = list(compress(self.columns, selected))
        rows = []
        for row in self.rows:
            cells = list(compress(row.cells, selected))
            rows.append(replace(row, cells=cells))
        return replace(self, columns=columns, rows=rows)


Record = Mapping[Any, Any]


def rows_of(frame: pd.DataFrame, columns: Sequence[Column], labels: Mapping[str, str]) -> list[Row]:
    """A row per method, from a frame with a row per method and suite.

    Args:
        frame: with the columns method, suite, and those that `columns` name.
        columns: those of the table, each with its suite.
        labels: by method, in the order of the rows; methods that the frame lacks are left out.
    """
    best = {f"{c.name}{BEST}": _best(frame, c) for c in columns if c.emphasis}
    by_pair = frame.assign(**best).set_index(["method", "suite"]).to_dict("index")
    there = set(frame["method"])
    rows = []
    for method, label in labels.items():
        records = [by_pair.get((method, column.suite), {}) for column in columns]
        if method in there:
            cells = [cell_of(record, col) for record, col in zip(records, columns, strict=True)]
            rows.append(Row(method, label, cells))
    return rows


def _best(frame: pd.DataFrame, column: Column) -> pd.Series:
    """Whether a number is the best of its suite among the competing rows; none is if all are equal.

    Rows compete with those of the same `source`, where the frame has that column.
    """
    # Numbers that are printed alike must not differ in their emphasis.
    printed = frame[column.name].round(column.decimals).where(frame[column.competes].eq(True))
    source = frame["source"] if "source" in frame else pd.Series("", frame.index)
    groups = printed.groupby([frame["suite"], source])
    # A row that competes alone is the best all the same.
    differ = groups.transform("nunique").gt(1) | groups.transform("count").eq(1)
    return printed.eq(groups.transform("max")) & differ


def listed_rows(frame: pd.DataFrame, columns: Sequence[Column], labels: Iterable[str]) -> list[Row]:
    """A row for each row of a frame, labelled in order."""
    records = frame.to_dict("records")
    return [
        Row("", label, [cell_of(record, column) for column in columns])
        for label, record in zip(labels, records, strict=True)
    ]


def cell_of(record: Record, column: Column) -> Cell:
    """The cell that a row of a frame has in a column; a dash if its number is missing.

    Args:
        record: the row, by column name.
        column: how the number is printed.
    """
    value = record.get(column.name)
    marks = record.get(column.marks, "")
    if isinstance(value, str):
        return Cell(value, marks=marks)
    if pd.isna(value):
        # An accuracy that nobody judged is something else than one that does not exist.
        unscored = column.name == "accuracy" and record.get("scored") == 0
        return Cell("n/s" if unscored else NO_NUMBER, marks=marks)
    text = _text(value, column) + column.unit
    by_seed = record.get(column.spread)
    if isinstance(by_seed, tuple) and len(by_seed) > 1:
        text += f" ± {stdev(by_seed):.{column.decimals}f}"
    emphasis = column.emphasis if record.get(f"{column.name}{BEST}") else ""
    return Cell(text, float(value), emphasis, marks, _below(record, column))


def _text(value: float, column: Column) -> str:
    """A number as printed, 0 without a sign."""
    # Rounding can leave -0.0 or +0.0.
    text = f"{column.scale * value:{column.sign}.{column.decimals}f}"
    return text.lstrip("+-") if float(text) == 0 else text


def _below(record: Record, column: Column) -> tuple[str, str]:
    """The two texts below a number: its interval, and what the column's `below` has."""
    ends = [record.get(f"{column.name}_{end}", math.nan) for end in ("low", "high")]
    interval = ""
    if column.ends is not None and not pd.isna(ends[0]):
        rounded = replace(column, decimals=column.ends, sign="")
        interval = " to ".join(_text(end, rounded) for end in ends)
    text = record.get(column.below, "")
    return interval, "" if pd.isna(text) else text
