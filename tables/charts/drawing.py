"""How every figure looks: one column wide, in colours and shapes of which either suffices, and without dates."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from harness.measures.table import timed
from harness.records.store import Run
from tables.charts import PALETTE

WIDTH = 3.3  # inches: a column of a two-column page
STYLE: dict[str, Any] = {
    **{"font.size": 8, "legend.fontsize": 6.5, "axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7},
    **{"axes.linewidth": 0.6, "lines.linewidth": 1.0, "lines.markersize": 4, "legend.frameon": False},
    **{"pdf.fonttype": 42, "font.family": "DejaVu Sans", "axes.spines.top": False, "axes.spines.right": False},
}
UNDATED: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    "png": {"Software": None},
}
MARKERS = "osD^vP*X<>phd"
MOST_IN_COLUMN = 27  # characters of a label that leave room for a second column
LINES = ("-", "--", "-.", ":")


class Skipped(Exception):
    """A figure cannot be drawn from these records; the message says why."""


def need_seconds(run: Run) -> None:
    """Raise Skipped if a run's seconds were not measured for comparison."""
    if not timed(run):
        raise Skipped("the run's seconds were not measured for comparison")


def new_figure(height: float, rows: int = 1, entries: Sequence[str] = ()) -> tuple[Figure, Any]:
    """A figure one column wide; its axes, or an array of `rows` of them that share x.

    height: in inches, without the legend below that has these `entries`, if any.
    """
    lines = -(-len(entries) // _columns(entries))
    figure = Figure(figsize=(WIDTH, height + 0.14 * lines), layout="constrained")
    return figure, figure.subplots(rows, 1, sharex=True)


def legend_below(figure: Figure, axes: Axes) -> None:
    """A legend of what the axes has, under the figure, in as many columns as fit."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=_columns(labels), columnspacing=1.0)


def _columns(labels: Sequence[object]) -> int:
    return 1 if max((len(str(label)) for label in labels), default=0) > MOST_IN_COLUMN else 2


def looks() -> Iterator[dict[str, Any]]:
    """Endless markers, filled and open by turns, in the palette's colours."""
    for number in itertools.count():
        turn, position = divmod(number, len(MARKERS))
        fill = "none" if (turn + position) % 2 else "full"
        yield {"marker": MARKERS[position], "fillstyle": fill, "color": PALETTE[number % len(PALETTE)]}


def plain_log(axis: Axis, subs: Sequence[int]) -> None:
    """Ticks of a logarithmic axis at these multiples of powers of ten, written as plain numbers."""
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def speed_axis(axes: Axes, speeds: pd.Series[float]) -> None:
    """A logarithmic x axis of ratios with a tick at every doubling, and one between where these would be few."""
    axes.set(xscale="log")
    axes.xaxis.set_major_locator(LogLocator(base=2, subs=(1, 1.5) if speeds.max() < 4 * speeds.min() else (1,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.xaxis.set_minor_locator(NullLocator())
