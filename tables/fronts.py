"""Figures of accuracy against what it costs: seconds a response, or forward passes, decoders at
several settings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from msgspec import structs

from harness.measures.intervals import tradeoff
from harness.measures.parallelism import curves, differ_in_one_option, series_of
from harness.measures.table import REFERENCE, measure, suite_titles, timed
from harness.methods.presets import TUNED
from harness.records.store import Run
from tables.charts import UNTIMED, legend_below, looks_of, need, new_figure, plain_log, whiskers

# around a point; in points
PLACES = [(side, distance) for distance in (5, 11, 18, 27) for side in range(8)]


def _side(offset: float, after: str, before: str) -> str:
    """How a text is aligned that is this far from its point."""
    if offset > 0.1:
        return after
    return before if offset < -0.1 else "center"


def name_points(
    figure: Figure, axes: Axes, points: Mapping[str, tuple[float, float]], dots: Sequence[Any]
) -> bool:
    """Write each name next to its point, in the first place that covers no dot and no other name;
    whether all had one.

    If one had none, nothing is written. points, dots: in the axes' data. A name that is not at its
    point has a line.
    """
    figure.draw_without_rendering()  # the layout, which decides what covers what
    inside = axes.get_window_extent()
    size = figure.dpi / 72 * 5  # of a dot, in pixels
    taken = [
        Bbox.from_bounds(x - size / 2, y - size / 2, size, size)
        for x, y in axes.transData.transform(list(dots))
    ]
    written: list[Any] = []
    for name, point in points.items():
        for side, distance in PLACES:
            x = math.cos(side * math.pi / 4)
            y = math.sin(side * math.pi / 4)
            text = axes.annotate(
                name,
                point,
                (distance * x, distance * y),
                textcoords="offset points",
                ha=_side(x, "left", "right"),
                va=_side(y, "bottom", "top"),
                fontsize=6,
                arrowprops={"arrowstyle": "-", "color": "0.6", "linewidth": 0.4}
                if distance > PLACES[0][1]
                else None,
            )
            written.append(text)
            box = text.get_window_extent()
            within = (
                inside.x0 <= box.x0
                and box.x1 <= inside.x1
                and inside.y0 <= box.y0
                and box.y1 <= inside.y1
            )
            if within and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            written.pop().remove()
        else:
            for text in written:
                text.remove()
            return False
    return True


def draw_front(
    run: Run, suite: str | None = None, named: Mapping[str, str] | None = None
) -> tuple[Figure, list[str]]:
    """Accuracy against mean seconds of a response, by series (`series_of`), and what was left out.

    A line joins methods that differ in one option. suite: None for means over the suites. Whiskers
    are 95% intervals, Wilson's on a suite; the band is LLaDA's, as tuned for accuracy if it was
    tuned. A method that only the timed part of a run has, on fewer problems, is left out. Raises
    Skipped unless methods were tuned or a series but LLaDA's has two that were scored, and if the
    run was not timed.
    """
    need(timed(run), UNTIMED)
    label = "mean accuracy (%)" if suite is None else f"accuracy on {suite_titles(run)[suite]} (%)"
    run = run if suite is None else _only(run, suite)
    seconds = measure(run).groupby("method")["seconds_per_item"].mean()
    accuracy, left_out = tradeoff(run)
    accuracy = accuracy.set_index("method")
    if run.speed:
        problems = run.items.groupby("method").size()
        few = [name for name in accuracy.index if problems[name] < problems.max()]
        accuracy = accuracy.drop(index=few)
        left_out += [
            f"without {run.config.methods[name].label}: its accuracy is of fewer problems"
            for name in few
        ]
    lines = {
        title: list(seconds[[name for name in names if name in accuracy.index]].sort_values().index)
        for title, names in series_of(run, named or {}).items()
    }
    lines = {title: series for title, series in lines.items() if series}
    tuned = any(TUNED in name for series in lines.values() for name in series)
    several = any(len(series) > 1 and REFERENCE not in series for series in lines.values())
    need(tuned or several, "no decoder but LLaDA has two settings that were scored")
    figure, axes = new_figure(2.9)
    look, _ = looks_of(run, named)
    for (name, series), dashes in zip(
        lines.items(), itertools.cycle(("-", "--", ":")), strict=False
    ):
        rows = accuracy.loc[series]
        axes.errorbar(
            1e3 * seconds[series],
            rows["accuracy"],
            yerr=whiskers(rows, "accuracy"),
            elinewidth=0.4,
            linewidth=0.7,
            linestyle=dashes
            if TUNED not in series[0] and differ_in_one_option(run, series)
            else "none",
            label=name,
            **look[name],
        )
    best_llada = f"{REFERENCE}{TUNED}accurate"
    llada = best_llada if best_llada in accuracy.index else REFERENCE
    if llada in accuracy.index:
        ends = accuracy.loc[llada, ["accuracy_low", "accuracy_high"]]
        axes.axhspan(*ends, color="0.95", linewidth=0, zorder=-1)
    front = front_of(seconds[accuracy.index], accuracy["accuracy"])
    axes.step(
        1e3 * seconds[front],
        accuracy["accuracy"][front],
        where="post",
        color="0.8",
        linewidth=2,
        zorder=0,
    )
    axes.set(xscale="log", xlabel="milliseconds a response", ylabel=label)
    within_decade = seconds[accuracy.index].max() < 10 * seconds[accuracy.index].min()
    plain_log(axes.xaxis, (1, 2, 3, 4, 6, 8) if within_decade else (1, 2, 5))
    best = {name: accuracy.loc[series, "accuracy"].idxmax() for name, series in lines.items()}
    points = {
        name: (1e3 * seconds[method], accuracy["accuracy"][method]) for name, method in best.items()
    }
    dots = [
        (1e3 * seconds[method], accuracy["accuracy"][method])
        for series in lines.values()
        for method in series
    ]
    if not name_points(figure, axes, points, dots):
        figure.set_size_inches(*new_figure(2.3, entries=list(lines))[0].get_size_inches())
        legend_below(figure, axes)
    return figure, left_out


def draw_parallelism(
    run: Run, suite: str | None = None, named: Mapping[str, str] | None = None
) -> tuple[Figure, list[str]]:
    """Accuracy against content tokens per forward pass of decoders at several settings.

    suite: None for means over the suites. The legend has the area under each curve as `curves`
    defines it. Raises Skipped where no decoder has two settings that were scored with LLaDA.
    """
    label = "mean accuracy (%)" if suite is None else f"accuracy on {suite_titles(run)[suite]} (%)"
    run = run if suite is None else _only(run, suite)
    found = curves(run, named)
    whole = {}
    left_out = []
    for title, own in found.groupby("series", sort=False):
        if len(own) == found["suite"].nunique() and own["points"].nunique() == 1:
            whole[title] = own
        else:
            left_out.append(f"without {title}: a suite is missing, or not scored")
    need(whole, "no decoder has two settings that were scored beside LLaDA")
    names = {title: f"{title} ({own['area'].mean():.0f})" for title, own in whole.items()}
    figure, axes = new_figure(2.3, entries=list(names.values()))
    look, _ = looks_of(run, named)
    for title, own in whole.items():
        points = sorted(
            zip(
                *(np.mean(own[name].to_list(), axis=0) for name in ("tpf", "accuracy")), strict=True
            )
        )
        axes.plot(*zip(*points, strict=True), linewidth=0.7, label=names[title], **look[str(title)])
    axes.set(xlabel="content tokens a forward pass", ylabel=label)
    legend_below(figure, axes)
    return figure, left_out


def front_of(seconds: pd.Series[float], accuracy: pd.Series[float]) -> list[str]:
    """The methods than which none is both as fast and more accurate, or faster and as accurate,
    fastest first."""
    best = float("-inf")
    front = []
    for method in sorted(seconds.index, key=lambda each: (seconds[each], -accuracy[each])):
        if accuracy[method] > best:
            best = accuracy[method]
            front.append(method)
    return front


def _only(run: Run, suite: str) -> Run:
    """The part of a run that is of one suite."""
    config = structs.replace(run.config, suites={suite: run.config.suites[suite]})
    windows = run.windows[run.windows["suite"] == suite] if len(run.windows) else run.windows
    items = run.items[run.items["suite"] == suite]
    return replace(run, meta=structs.replace(run.meta, config=config), items=items, windows=windows)
