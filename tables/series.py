"""Series of points, from which matplotlib draws the paper's figures and plotly the report's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#5a50f0", "#3a95cf", "#767676")
Whiskers = tuple[list[float], list[float]]


@dataclass(frozen=True)
class Series:
    """Points under one name.

    Attributes:
        name: in legends.
        x, y: coordinates of the points.
        x_whiskers, y_whiskers: lengths of the intervals below and above each point.
    """

    name: str
    x: Sequence[Any]
    y: Sequence[float]
    x_whiskers: Whiskers | None = None
    y_whiskers: Whiskers | None = None


def series_of_rows(name: str, rows: pd.DataFrame, x: str, y: str) -> Series:
    """A series of two columns, with their intervals where the frame has any.

    Args:
        name: of the series.
        rows: one point each.
        x, y: columns; an interval of x is in the columns x_low and x_high.
    """
    whiskers = [_whiskers(rows, column) for column in (x, y)]
    return Series(name, rows[x].tolist(), rows[y].tolist(), *whiskers)


def _whiskers(rows: pd.DataFrame, column: str) -> Whiskers | None:
    """The lengths of a column's intervals; None unless the frame has one for every row."""
    if f"{column}_low" not in rows:
        return None
    below = rows[column] - rows[f"{column}_low"]
    above = rows[f"{column}_high"] - rows[column]
    if below.isna().any() or above.isna().any():
        return None
    # rounding can make a length of 0 negative
    return below.clip(lower=0).tolist(), above.clip(lower=0).tolist()
