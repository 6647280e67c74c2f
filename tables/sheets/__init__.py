"""From frames of numbers to tables: their rows, columns and run cards. A new table is one file
here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pandas as pd

from harness.measures.card import Card, card_of
from harness.measures.intervals import Pairs
from harness.measures.table import MEAN
from harness.records.store import Run
from tables.table import Cell, Column, Row, Table

MEAN_TITLE = "Mean"


@dataclass(frozen=True)
class TableRequest:
    """A run, and which tables of it are wanted.

    Attributes:
        run: as read.
        measured: its frame from `measure`.
        pairs: from `intervals.paired` if intervals are wanted, else None.
        paper: whether the paper's numbers are wanted.
        against: the method to compare all others with, or "".
        measures: whether the field's measures of tokens and parallelism are wanted.
        published: whether published accuracies are wanted next to the measured ones.
    """

    run: Run
    measured: pd.DataFrame
    pairs: Pairs | None = None
    paper: bool = False
    against: str = ""
    measures: bool = False
    published: bool = False

    def table(
        self,
        name: str,
        caption: str,
        columns: Sequence[Column],
        rows: Sequence[Row],
        numbers: pd.DataFrame,
        shown: pd.DataFrame | None = None,
        card: Card | None = None,
    ) -> Table:
        """A table with the run's card.

        Args:
            name, caption, columns, rows, numbers: the fields of `Table`.
            shown: the rows of `measured` that the table and so its card are about (default: all).
            card: entries of this table alone, before the run's; empty ones are left out.
        """
        run_card = card_of(self.run, self.measured if shown is None else shown)
        first = {key: value for key, value in (card or {}).items() if value}
        return Table(name, caption, columns, rows, first | run_card, numbers)


COLUMNS = msgspec.toml.decode(
    Path(__file__).with_name("columns.toml").read_bytes(), type=dict[str, tuple[Column, ...]]
)
METRICS = COLUMNS["main"]
ACCURACY, SPEED, FORWARDS = METRICS[:3]
ACCEPTANCE, PUBLISHED = COLUMNS["others"]


def columns_of(
    metrics: Sequence[Column], suites: Mapping[str, str], seconds: bool = True
) -> list[Column]:
    """The metrics under every suite.

    Args:
        metrics: without a suite.
        suites: titles by key.
        seconds: whether the run was timed, without which there is no Speed.
    """
    shown = [metric for metric in metrics if seconds or metric.heading != SPEED.heading]
    return [
        replace(metric, suite=suite, group=title)
        for suite, title in suites.items()
        for metric in shown
    ]


def suites_shown(frame: pd.DataFrame, titles: Mapping[str, str]) -> dict[str, str]:
    """The titles of the suites that a frame has, the mean of all last."""
    present = set(frame["suite"])
    shown = {suite: title for suite, title in titles.items() if suite in present}
    return shown | ({MEAN: MEAN_TITLE} if MEAN in present else {})


def with_checkpoints(columns: list[Column], rows: list[Row], names: Sequence[str]) -> list[Column]:
    """Put a column of checkpoints first, unless all rows have the same ones.

    Args:
        columns: of a table.
        rows: of the table; the new column's cells are added to them in place.
        names: the checkpoints of each row.

    Returns:
        The columns, with the new one.
    """
    if len(set(names)) < 2:
        return columns
    for index, (row, name) in enumerate(zip(rows, names, strict=True)):
        rows[index] = replace(row, cells=(Cell(name), *row.cells))
    return [Column("checkpoint", "Checkpoint"), *columns]
