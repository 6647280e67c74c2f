"""The figures of a run: one column wide, readable in grey, the same bytes every time.

Which methods are one series is read from the run's configuration, so that a new decoder has its
series too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from harness.errors import explained
from harness.measures.intervals import tradeoff
from harness.measures.parallelism import by_option, series_of
from harness.measures.table import REFERENCE, method_labels, timed
from harness.measures.theory import WINDOW, acceptance_by_position, fef_windows, theory
from harness.methods.presets import prefix_conditioned
from harness.records.store import Run
from tables.sheets.suites import ONLY_ABLATION

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#5a50f0", "#3a95cf", "#767676")
WIDTH = 3.3  # inches: a column of a two-column page
STYLE: dict[str, Any] = {
    **{
        "font.size": 8,
        "legend.fontsize": 6.5,
        "axes.labelsize": 8,
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
    },
    **{
        "axes.linewidth": 0.6,
        "lines.linewidth": 1.0,
        "lines.markersize": 4,
        "legend.frameon": False,
    },
    **{
        "pdf.fonttype": 42,
        "font.family": "DejaVu Sans",
        "axes.spines.top": False,
        "axes.spines.right": False,
    },
}
UNDATED: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    "png": {"Software": None},
}
MARKERS = "osD^vP*X<>phd"
MOST_IN_COLUMN = 27  # characters of a label that leave room for a second column
LINES = ("-", "--", "-.", ":")
UNTIMED = "the run's seconds were not measured for comparison"


class Skipped(Exception):
    """A figure cannot be drawn from these records; the message says why."""


def need(there: object, why: str) -> None:
    """Raise Skipped, which says why, if what a figure needs is not there."""
    if not there:
        raise Skipped(why)


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
    figure.legend(
        handles, labels, loc="outside lower center", ncols=_columns(labels), columnspacing=1.0
    )


def _columns(labels: Sequence[object]) -> int:
    return 1 if max((len(str(label)) for label in labels), default=0) > MOST_IN_COLUMN else 2


def whiskers(rows: pd.DataFrame, value: str) -> list[pd.Series[float]]:
    """Lengths of the interval of a column below and above it."""
    lengths = [rows[value] - rows[f"{value}_low"], rows[f"{value}_high"] - rows[value]]
    return [length.clip(lower=0) for length in lengths]  # rounding can make a width of 0 negative


def looks() -> Iterator[dict[str, Any]]:
    """Endless markers, filled and open by turns, in the palette's colours."""
    for number in itertools.count():
        turn, position = divmod(number, len(MARKERS))
        fill = "none" if (turn + position) % 2 else "full"
        yield {
            "marker": MARKERS[position],
            "fillstyle": fill,
            "color": PALETTE[number % len(PALETTE)],
        }


Looks = dict[str, dict[str, Any]]


def looks_of(run: Run, named: Mapping[str, str] | None = None) -> tuple[Looks, Looks]:
    """The looks of a run's series by title, and of its methods by name, the same in all its
    figures.

    The first method of a series looks as the series does. named: as `series_of` has it.
    """
    series = series_of(run, named or {})
    titles = {names[0]: title for title, names in series.items() if names}
    others = [name for name in run.config.methods if name not in titles]
    endless = looks()
    by_title = dict(zip(series, endless, strict=False))
    by_name = dict(zip(others, endless, strict=False)) | {
        name: by_title[title] for name, title in titles.items()
    }
    return by_title, by_name


def plain_log(axis: Axis, subs: Sequence[int]) -> None:
    """Ticks of a logarithmic axis at these multiples of powers of ten, written as plain numbers."""
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


# of expected acceptance under independence, one per method
EXPECTED_LINES = (
    "--",
    ":",
    "-.",
    (0, (5, 3, 1, 1, 1, 1)),
)
MOST_CURVES = len(EXPECTED_LINES)
MOST_METHODS = 20  # markers that a reader can still find in the legend


def draw_tradeoff(run: Run, series: Mapping[str, str] | None = None) -> tuple[Figure, list[str]]:
    """Accuracy against speedup, and what was left out. Raises Skipped without LLaDA's scores or a
    timed run."""
    need(timed(run), UNTIMED)
    frame, left_out = tradeoff(run)
    need(not frame.empty, "; ".join(left_out))
    few = len(frame) <= MOST_METHODS
    need(few, f"{len(frame)} methods are too many to distinguish; at most {MOST_METHODS} are drawn")
    labels = method_labels(run)
    _, look = looks_of(run, series)
    figure, axes = new_figure(2.3, entries=[labels[method] for method in frame["method"]])
    axes.axvline(1, color="0.7", linewidth=0.6, linestyle=":", zorder=0)
    for method, row in frame.groupby("method", sort=False):
        ends = {
            "xerr": whiskers(row, "speedup"),
            "yerr": whiskers(row, "accuracy"),
            "elinewidth": 0.6,
        }
        axes.errorbar(
            row["speedup"],
            row["accuracy"],
            linestyle="none",
            label=labels[str(method)],
            **ends,
            **look[str(method)],
        )
    # A tick at every doubling, and one between where these would be few.
    subs = (1, 1.5) if frame["speedup"].max() < 4 * frame["speedup"].min() else (1,)
    axes.set(xscale="log")
    axes.xaxis.set_major_locator(LogLocator(base=2, subs=subs))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.xaxis.set_minor_locator(NullLocator())
    several = run.items["suite"].nunique() > 1
    axes.set(
        xlabel="wall-clock speedup over LLaDA",
        ylabel=f"accuracy{', mean over suites' * several} (%)",
    )
    legend_below(figure, axes)
    return figure, left_out


def draw_acceptance(run: Run, series: Mapping[str, str] | None = None) -> tuple[Figure, list[str]]:
    """Acceptance by position in the window over all suites: above of tested drafts, below of all,
    with independence.

    At most four methods are drawn, FeF-DLLM's first; those of an ablation alone only where there
    are no others. Raises Skipped if no method has windows.
    """
    windows = fef_windows(run, others=True)
    labels = method_labels(run)
    fef = prefix_conditioned(run.config)
    has_windows = set(windows["method"].unique())
    ran = [
        method
        for method in (*fef, *(name for name in labels if name not in fef))
        if method in has_windows
    ]
    need(ran, "no method of this run has speculative windows")
    asked = [method for method in ran if method not in ONLY_ABLATION] or ran
    shown = asked[:MOST_CURVES]
    left_out = [f"without {labels[method]}" for method in asked[MOST_CURVES:]]
    figure, (above, below) = new_figure(
        3.0, rows=2, entries=[labels[method] for method in shown for _ in range(2)]
    )
    for method, line in zip(shown, EXPECTED_LINES, strict=False):
        look = looks_of(run, series)[1][method]
        positions = acceptance_by_position(windows[windows["method"] == method])
        style = {**look, "linestyle": "-", "markersize": 3.5, "linewidth": 0.7}
        above.plot(positions["position"], positions["given_tested"], label=labels[method], **style)
        below.plot(positions["position"], positions["unconditional"], label=labels[method], **style)
        alpha = float(positions["independent"].iloc[0])
        expected: dict[str, Any] = {"color": look["color"], "linestyle": line, "linewidth": 1.2}
        above.axhline(alpha, **expected)
        named = rf"independent, $\alpha$={alpha:.3f}"
        below.plot(positions["position"], positions["independent"], label=named, **expected)
    above.set(ylabel="accepted / tested", ylim=(None, 1.02))
    below.set(ylabel="accepted / proposed", xlabel="position in the window", ylim=(0, 1.04))
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_below(figure, below)
    return figure, left_out


def draw_window_size(run: Run) -> tuple[Figure, list[str]]:
    """Committed length and speedup against window size, means over the suites, of methods that
    differ in it alone.

    Above, the committed length of the first such series and the theorem's; below, the speedups of
    all. Raises Skipped with fewer than two window sizes, or if the run was not timed.
    """
    need(timed(run), UNTIMED)
    expected = theory(run)
    means = {}
    for title, row in by_option(run, "window", WINDOW).items():
        rows = expected[expected["method"].isin(list(row.values()))]
        if rows["method"].nunique() > 1:
            means[title] = rows.groupby("window").mean(numeric_only=True)
    need(means, "it takes two methods that differ in the window size alone (--methods window-size)")
    first = next(iter(means.values()))
    named = {title: f"{title}, " if len(means) > 1 else "" for title in means}
    figure, (above, below) = new_figure(
        3.6, rows=2, entries=[f"{each}forward passes" for each in named.values()] * 2
    )
    measured, expected_of_k, expected_of_b = PALETTE[:3]
    above.plot(first["committed_per_window"], "o-", color=measured, label="measured")
    hollow: dict[str, Any] = {"fillstyle": "none"}
    above.plot(
        first["expected_committed"],
        "s--",
        color=expected_of_k,
        label="$E[C_k]$, windows of $k$",
        **hollow,
    )
    actual = first["expected_committed_windows"]
    above.plot(actual, "^:", color=expected_of_b, label="$E[C_b]$, actual lengths", **hollow)
    above.set(ylabel="committed per window")
    above.legend()
    for (title, rows), look in zip(means.items(), looks(), strict=False):
        below.plot(rows["speedup"], linestyle="-", label=f"{named[title]}wall-clock", **look)
        below.plot(
            rows["forward_speedup"],
            linestyle="-.",
            label=f"{named[title]}forward passes",
            **look | hollow,
        )
    speeds = pd.concat([rows[["forward_speedup", "speedup"]] for rows in means.values()]).to_numpy()
    below.set(xlabel="window size $k$", ylabel="speedup over LLaDA", xscale="log")
    ticks = sorted({size for rows in means.values() for size in rows.index})
    below.set_xticks(ticks, [str(size) for size in ticks], minor=False)
    below.xaxis.set_minor_locator(NullLocator())
    below.set_ylim(0, 1.1 * float(speeds.max()))
    legend_below(figure, below)
    return figure, []


def draw_curves(curves: dict[str, Path]) -> tuple[Figure, list[str]]:
    """Losses of training by name, raw in pale grey and smoothed over a fortieth of them, from
    loss.csv files.

    Columns `step` and `loss`; later stages are drawn after earlier ones. Raises UserError if a file
    lacks them.
    """
    figure, axes = new_figure(2.4)
    losses = {name: _losses(path) for name, path in curves.items()}
    styles = zip(itertools.cycle(PALETTE), itertools.cycle(LINES), strict=False)
    for (name, loss), (color, line) in zip(losses.items(), styles, strict=False):
        axes.plot(loss, color="0.8", linewidth=0.5, zorder=1)
        smooth = loss.rolling(max(1, len(loss) // 40), center=True, min_periods=1).mean()
        axes.plot(smooth, color=color, linestyle=line, linewidth=1.3, label=name, zorder=2)
    axes.set(xlabel="step", ylabel="loss (nats)")
    everything = pd.concat(list(losses.values()))
    if everything.min() > 0 and everything.max() > 5 * everything.min():
        axes.set_yscale("log")
        plain_log(axes.yaxis, (1, 2, 5))
    axes.legend()
    return figure, []


def _losses(path: Path) -> pd.Series[float]:
    """The losses of a loss.csv by step, later stages after earlier ones."""
    unlike = f"{path} is no loss.csv of harness.train, with columns step and loss"
    with explained(unlike, OSError, ValueError, KeyError):
        frame = pd.read_csv(path)
        steps = frame["step"].to_numpy(dtype=float)
        losses = frame["loss"].to_numpy(dtype=float)
        begins = (
            np.diff(frame["stage"].to_numpy(dtype=float))
            if "stage" in frame
            else np.diff(steps) <= 0
        )
    offsets = np.zeros(len(steps))
    for end in np.flatnonzero(begins):
        offsets[end + 1 :] += steps[end]
    return pd.Series(losses, index=steps + offsets).dropna()


WHOLE = "whole"  # the anchor of a step that has one context
ANCHOR = "anchor: unresolved positions per context pass"


def draw_option(
    run: Run, option: str, default: Any = None, label: str = ""
) -> tuple[Figure, list[str]]:
    """Accuracy and wall-clock speedup by an option, means over the suites; a line a decoder.

    Args:
        option: an option or a length of some decoder.
        default: the value where a method does not set it (None: as the run recorded it).
        label: of the axis (default: the option).

    Raises:
        Skipped: no two methods differ in this option alone, or the run was not timed.
    """
    need(timed(run), UNTIMED)
    frame, left_out = tradeoff(run)
    frame = frame.set_index("method")
    series = {}
    for title, row in by_option(run, option, default).items():
        scored = {value: method for value, method in row.items() if method in frame.index}
        if len(scored) > 1:
            series[title] = scored
    need(series, f"it takes two methods with scores that differ in {option} alone")
    values = sorted({value for row in series.values() for value in row}, key=_by_size)
    numbers = all(isinstance(value, int | float) for value in values)
    places = values if numbers else range(len(values))
    place_of = dict(zip(values, places, strict=True))
    figure, (above, below) = new_figure(3.6, rows=2, entries=[*series, "LLaDA"])
    for (name, row), look in zip(series.items(), looks(), strict=False):
        shown = [value for value in values if value in row]
        rows = frame.loc[[row[value] for value in shown]]
        positions = [place_of[value] for value in shown]
        for axes, measure in ((above, "accuracy"), (below, "speedup")):
            ends = {"yerr": whiskers(rows, measure), "elinewidth": 0.6}
            axes.errorbar(positions, rows[measure], linestyle="-", label=name, **ends, **look)
    if REFERENCE in frame.index:
        accuracy = frame.loc[REFERENCE, "accuracy"]
        above.axhline(accuracy, color="0.5", linestyle="--", linewidth=0.8, label="LLaDA")
    above.set(ylabel="accuracy (%)")
    below.set(ylabel="wall-clock speedup", xlabel=label or option)
    below.set_xticks(places, [str(value) for value in values], minor=False)
    legend_below(figure, above)
    return figure, left_out


def _by_size(value: Any) -> tuple[bool, float, str]:
    """Numbers in their order, then texts in theirs."""
    number = isinstance(value, int | float)
    return not number, value if number else 0, str(value)
