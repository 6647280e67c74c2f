"""The figures of a run, and how all figures are drawn: one column wide, readable in grey, the same bytes every time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
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
from harness.measures.parallelism import by_option
from harness.measures.table import method_labels, timed
from harness.measures.theory import WINDOW, acceptance_by_position, fef_windows, theory
from harness.methods.presets import prefix_conditioned
from harness.records.store import Run
from tables.charts import PALETTE
from tables.sheets.suites import ONLY_ABLATION

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


EXPECTED_LINES = ("--", ":", "-.", (0, (5, 3, 1, 1, 1, 1)))  # of expected acceptance under independence, one per method
MOST_CURVES = len(EXPECTED_LINES)
MOST_METHODS = 20  # markers that a reader can still find in the legend


def draw_tradeoff(run: Run) -> tuple[Figure, list[str]]:
    """Accuracy against speedup of all methods, and what was left out.

    Raises Skipped if LLaDA is not scored, or the run was not timed.
    """
    need(timed(run), UNTIMED)
    frame, left_out = tradeoff(run)
    need(not frame.empty, "; ".join(left_out))
    need(
        len(frame) <= MOST_METHODS,
        f"{len(frame)} methods are too many to distinguish; at most {MOST_METHODS} are drawn",
    )
    labels, look = method_labels(run), looks()
    figure, axes = new_figure(2.3, entries=[labels[method] for method in frame["method"]])
    axes.axvline(1, color="0.7", linewidth=0.6, linestyle=":", zorder=0)
    for row in frame.to_dict("records"):
        axes.errorbar(
            row["speedup"],
            row["accuracy"],
            xerr=[[row["speedup"] - row["speedup_low"]], [row["speedup_high"] - row["speedup"]]],
            yerr=[[row["accuracy"] - row["accuracy_low"]], [row["accuracy_high"] - row["accuracy"]]],
            elinewidth=0.6,
            linestyle="none",
            label=labels[row["method"]],
            **next(look),
        )
    speed_axis(axes, frame["speedup"])
    axes.set(xlabel="wall-clock speedup over LLaDA", ylabel="accuracy, mean over suites (%)")
    legend_below(figure, axes)
    return figure, left_out


def draw_acceptance(run: Run) -> tuple[Figure, list[str]]:
    """Acceptance by position in the window over all suites: above of tested drafts, below of all, beside independence.

    Methods that only belong to an ablation are left out where there are others, and at most four are drawn, those of
    FeF-DLLM before all. Raises Skipped if no method has windows.
    """
    windows, labels, fef = fef_windows(run, others=True), method_labels(run), prefix_conditioned(run.config)
    has_windows = set(windows["method"].unique())
    ran = [method for method in (*fef, *(name for name in labels if name not in fef)) if method in has_windows]
    need(ran, "no method of this run has speculative windows")
    asked = [method for method in ran if method not in ONLY_ABLATION] or ran
    shown, left_out = asked[:MOST_CURVES], [f"without {labels[method]}" for method in asked[MOST_CURVES:]]
    figure, (above, below) = new_figure(3.0, rows=2, entries=[labels[method] for method in shown for _ in range(2)])
    for method, look, line in zip(shown, looks(), EXPECTED_LINES, strict=False):
        positions = acceptance_by_position(windows[windows["method"] == method])
        style = {**look, "linestyle": "-", "markersize": 3.5, "linewidth": 0.7}
        above.plot(positions["position"], positions["given_tested"], label=labels[method], **style)
        below.plot(positions["position"], positions["unconditional"], label=labels[method], **style)
        alpha = float(positions["independent"].iloc[0])
        expected: dict[str, Any] = {"color": look["color"], "linestyle": line, "linewidth": 1.2}
        above.axhline(alpha, **expected)
        below.plot(
            positions["position"], positions["independent"], label=rf"independent, $\alpha$={alpha:.3f}", **expected
        )
    above.set(ylabel="accepted / tested", ylim=(None, 1.02))
    below.set(ylabel="accepted / proposed", xlabel="position in the window", ylim=(0, 1.04))
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_below(figure, below)
    return figure, left_out


def draw_window_size(run: Run) -> tuple[Figure, list[str]]:
    """Committed length and speedup against window size, means over the suites, of methods that differ in it alone.

    Above, the committed length of the first such series beside the theorem's; below, the speedups of all. Raises
    Skipped with fewer than two window sizes, or if the run was not timed.
    """
    need(timed(run), UNTIMED)
    expected = theory(run)
    ran = set(expected["method"])
    series = {
        title: [method for method in row.values() if method in ran]
        for title, row in by_option(run, "window", WINDOW).items()
    }
    series = {title: methods for title, methods in series.items() if len(methods) > 1}
    need(series, "it takes two methods that differ in the window size alone (--methods window-size)")
    means = {
        title: expected[expected["method"].isin(methods)].groupby("window").mean(numeric_only=True)
        for title, methods in series.items()
    }
    first = next(iter(means.values()))
    named = {title: f"{title}, " if len(means) > 1 else "" for title in means}
    figure, (above, below) = new_figure(3.6, rows=2, entries=[f"{each}forward passes" for each in named.values()] * 2)
    measured, expected_of_k, expected_of_b = PALETTE[:3]
    above.plot(first["committed_per_window"], "o-", color=measured, label="measured")
    hollow: dict[str, Any] = {"fillstyle": "none"}
    above.plot(first["expected_committed"], "s--", color=expected_of_k, label="$E[C_k]$, windows of $k$", **hollow)
    actual = first["expected_committed_windows"]
    above.plot(actual, "^:", color=expected_of_b, label="$E[C_b]$, actual lengths", **hollow)
    above.set(ylabel="committed per window")
    above.legend()
    for (title, rows), look in zip(means.items(), looks(), strict=False):
        below.plot(rows["speedup"], linestyle="-", label=f"{named[title]}wall-clock", **look)
        below.plot(rows["forward_speedup"], linestyle="-.", label=f"{named[title]}forward passes", **look | hollow)
    speeds = pd.concat([rows[["forward_speedup", "speedup"]] for rows in means.values()]).to_numpy()
    below.set(xlabel="window size $k$", ylabel="speedup over LLaDA", xscale="log")
    ticks = sorted({size for rows in means.values() for size in rows.index})
    below.set_xticks(ticks, [str(size) for size in ticks], minor=False)
    below.xaxis.set_minor_locator(NullLocator())
    below.set_ylim(0, 1.1 * float(speeds.max()))
    legend_below(figure, below)
    return figure, []


def draw_curves(curves: dict[str, Path]) -> tuple[Figure, list[str]]:
    """Losses of training by name, raw in pale grey and smoothed over a fortieth of them, from loss.csv files.

    Columns `step` and `loss`; later stages are drawn after earlier ones. Raises UserError if a file lacks them.
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


def draw_throughput(record: Path) -> tuple[Figure, list[str]]:
    """Responses a second against how many are decoded at once, means over the suites; of bench.py --throughput --out.

    Raises UserError for a file that is no such record.
    """
    with explained(
        f"{record} is no record of harness.bench --throughput --out", OSError, ValueError, KeyError, TypeError
    ):
        table = pd.DataFrame(json.loads(record.read_text(encoding="utf-8"))["throughput"])
        means = table.groupby(["method", "batch"], sort=False)["responses/s"].mean()
    names = list(dict.fromkeys(table["method"]))
    figure, axes = new_figure(2.3, entries=names)
    for name, look in zip(names, looks(), strict=False):
        axes.plot(means[name].index, means[name], linewidth=0.7, label=name, **look)
    axes.set(xscale="log", yscale="log", xlabel="responses decoded at once", ylabel="responses a second")
    sizes = sorted(set(table["batch"]))
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.xaxis.set_minor_formatter(NullFormatter())
    plain_log(axes.yaxis, (1, 2, 5))
    legend_below(figure, axes)
    return figure, []


def _losses(path: Path) -> pd.Series[float]:
    """The losses of a loss.csv by step, later stages after earlier ones."""
    with explained(
        f"{path} is no loss.csv of harness.train, with columns step and loss", OSError, ValueError, KeyError
    ):
        frame = pd.read_csv(path)
        steps, losses = frame["step"].to_numpy(dtype=float), frame["loss"].to_numpy(dtype=float)
    ends = np.flatnonzero(np.diff(steps) < 0)
    offsets = np.zeros(len(steps))
    for end in ends:
        offsets[end + 1 :] += steps[end]
    return pd.Series(losses, index=steps + offsets).dropna()
