"""Series of points, from which matplotlib draws the paper's figures and plotly the report's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.measures.theory import acceptance_by_position, fef_windows
from harness.records.store import Run

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


@dataclass(frozen=True)
class Acceptance:
    """How often a method's drafts are accepted, by position in the window, from 1.

    Attributes:
        method: its name.
        tested: share of accepted drafts among those tested, all drafts before them being accepted.
        proposed: share of accepted drafts among all proposed ones.
        independent: that share if acceptance were independent with probability alpha.
        alpha: share of accepted drafts among all tested ones, over all positions.
    """

    method: str
    tested: Series
    proposed: Series
    independent: Series
    alpha: float


def acceptances(run: Run, labels: dict[str, str]) -> list[Acceptance]:
    """The acceptance of each of these methods that has windows, over all suites.

    Args:
        run: as read.
        labels: of methods, by name.
    """
    drafts = []
    windows = fef_windows(run, others=True)
    for method, label in labels.items():
        positions = acceptance_by_position(windows[windows["method"] == method])
        if positions.empty:
            continue
        tested, proposed, independent = (
            series_of_rows(label, positions, "position", column)
            for column in ("given_tested", "unconditional", "independent")
        )
        # At position m independence predicts alpha^m, at the first position alpha itself.
        drafts.append(Acceptance(method, tested, proposed, independent, independent.y[0]))
    return drafts
