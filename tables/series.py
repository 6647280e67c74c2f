"""What figures show, as series of points: matplotlib draws the paper's figures from them, plotly
the report's."""

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
    """Points that have one name; x_whiskers, y_whiskers: lengths of intervals below and above."""

    name: str
    x: Sequence[Any]
    y: Sequence[float]
    x_whiskers: Whiskers | None = None
    y_whiskers: Whiskers | None = None


def series_of_rows(name: str, rows: pd.DataFrame, x: str, y: str) -> Series:
    """A series of two columns, with the intervals that the frame has of them.

    Args:
        name: of the series.
        rows: a point each.
        x, y: columns; of an interval there are x_low and x_high.
    """
    whiskers = [_whiskers(rows, column) for column in (x, y)]
    return Series(name, rows[x].tolist(), rows[y].tolist(), *whiskers)


def _whiskers(rows: pd.DataFrame, column: str) -> Whiskers | None:
    """The lengths of intervals; None where one of them is not known."""
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
    """A method's drafts by position in the window, from 1: accepted of those tested, accepted of
    all, and what that is if acceptance is independent with probability alpha."""

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
    found = []
    windows = fef_windows(run, others=True)
    for method, label in labels.items():
        positions = acceptance_by_position(windows[windows["method"] == method])
        if positions.empty:
            continue
        tested, proposed, independent = (
            series_of_rows(label, positions, "position", column)
            for column in ("given_tested", "unconditional", "independent")
        )
        found.append(Acceptance(method, tested, proposed, independent, independent.y[0]))
    return found
