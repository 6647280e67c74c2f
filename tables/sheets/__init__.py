"""Frames of numbers become tables: which rows and columns, and what stands beside them. A new table
is one file here."""

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
    """What tables are made of.

    run: as read. measured: its rows of `measure`. pairs: of `intervals.paired`, if intervals are
    wanted. paper: whether the paper's numbers are, where it has any of the run's methods and
    suites. against: the method to compare all others with, or "". measures, published: whether the
    field's measures are wanted, and published accuracies next to the measured ones.
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
            name, caption, columns, rows, numbers: as of `Table`.
            shown: rows of `measure` whose methods and suites it has (default: all).
            card: what only this table says; "" is left out.
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
        seconds: whether there is a Speed.
    """
    shown = [metric for metric in metrics if seconds or metric.heading != SPEED.heading]
    return [
        replace(metric, suite=suite, group=title)
        for suite, title in suites.items()
        for metric in shown
    ]


def suites_shown(frame: pd.DataFrame, titles: Mapping[str, str]) -> dict[str, str]:
    """The titles of the suites that a frame has, the mean of all last."""
    there = set(frame["suite"])
    shown = {suite: title for suite, title in titles.items() if suite in there}
    return shown | ({MEAN: MEAN_TITLE} if MEAN in there else {})


def with_checkpoints(columns: list[Column], rows: list[Row], names: Sequence[str]) -> list[Column]:
    """The columns after one of checkpoints, where these differ; adds its cells to the rows.

    Args:
        columns, rows: of a table.
        names: of each row's checkpoints.
    """
    if len(set(names)) < 2:
        return columns
    for place, (row, name) in enumerate(zip(rows, names, strict=True)):
        rows[place] = replace(row, cells=(Cell(name), *row.cells))
    return [Column("checkpoint", "Checkpoint"), *columns]
