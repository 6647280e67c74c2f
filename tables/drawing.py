"""How every figure looks: one column wide, black and white, told apart without colour, and without dates."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

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
GREYS = ("0", "0.45", "0.25", "0.6")
LINES = ("-", "--", "-.", ":")


class Skipped(Exception):
    """A figure cannot be drawn from these records; the message says why."""


def new_figure(height: float, rows: int = 1) -> tuple[Figure, Any]:
    """A figure one column wide; its axes, or an array of `rows` of them that share x."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, 1, sharex=True)


def looks() -> Iterator[dict[str, Any]]:
    """Endless markers, filled and open by turns, in black and grey."""
    for number in itertools.count():
        turn, place = divmod(number, len(MARKERS))
        is_open = (turn + place) % 2
        yield {"marker": MARKERS[place], "fillstyle": "none" if is_open else "full", "color": GREYS[is_open]}


def speed_axis(axes: Axes, speeds: pd.Series[float]) -> None:
    """A logarithmic x axis of ratios with ticks that halve and double, and between if there are few of these."""
    axes.set(xscale="log")
    axes.xaxis.set_major_locator(LogLocator(base=2, subs=(1, 1.5) if speeds.max() < 4 * speeds.min() else (1,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.xaxis.set_minor_locator(NullLocator())
