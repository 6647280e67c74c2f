"""Figures of decoders at several settings: the front of accuracy and time, window sizes, anchors.

Which methods are one series is read from the run's configuration, so a decoder of one's own is in them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import cycle

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from msgspec import structs

from harness.measures.intervals import tradeoff
from harness.measures.parallelism import by_option, curves, differ_in_one_option, series_of
from harness.measures.table import REFERENCE, measure, suite_titles, timed
from harness.methods.selection import TUNED
from harness.records.store import Run
from tables.charts.figures import UNTIMED, legend_below, looks, need, new_figure, plain_log

WHOLE = "whole"  # the anchor of a step that has one context


def draw_front(run: Run, suite: str | None = None, named: Mapping[str, str] | None = None) -> tuple[Figure, list[str]]:
    """Accuracy against mean seconds of a response, by series (`series_of`), and what was left out.

    A line joins methods that differ in one option. suite: None for means over the suites. Whiskers are 95% intervals,
    Wilson's on a suite; the band is LLaDA's. Raises Skipped unless methods were tuned or a series beside LLaDA's has
    two that were scored, and if the run was not timed.
    """
    need(timed(run), UNTIMED)
    label = "mean accuracy (%)" if suite is None else f"accuracy on {suite_titles(run)[suite]} (%)"
    run = run if suite is None else _only(run, suite)
    seconds = measure(run).groupby("method")["seconds_per_item"].mean()
    accuracy, left_out = tradeoff(run)
    accuracy = accuracy.set_index("method")
    lines = {
        title: list(seconds[[name for name in names if name in accuracy.index]].sort_values().index)
        for title, names in series_of(run, named or {}).items()
    }
    lines = {title: series for title, series in lines.items() if series}
    tuned = any(TUNED in name for series in lines.values() for name in series)
    several = any(len(series) > 1 and REFERENCE not in series for series in lines.values())
    need(tuned or several, "no decoder but LLaDA has two settings that were scored")
    figure, axes = new_figure(2.3, entries=list(lines))
    for (name, series), look, dashes in zip(lines.items(), looks(), cycle(("-", "--", ":")), strict=False):
        rows = accuracy.loc[series]
        axes.errorbar(
            1e3 * seconds[series],
            rows["accuracy"],
            yerr=[rows["accuracy"] - rows["accuracy_low"], rows["accuracy_high"] - rows["accuracy"]],
            elinewidth=0.4,
            linewidth=0.7,
            linestyle=dashes if TUNED not in series[0] and differ_in_one_option(run, series) else "none",
            label=name,
            **look,
        )
    if REFERENCE in accuracy.index:
        ends = accuracy.loc[REFERENCE, ["accuracy_low", "accuracy_high"]]
        axes.axhspan(*ends, color="0.95", linewidth=0, zorder=-1)
    front = front_of(seconds[accuracy.index], accuracy["accuracy"])
    axes.step(1e3 * seconds[front], accuracy["accuracy"][front], where="post", color="0.8", linewidth=2, zorder=0)
    axes.set(xscale="log", xlabel="milliseconds a response", ylabel=label)
    within_decade = seconds[accuracy.index].max() < 10 * seconds[accuracy.index].min()
    plain_log(axes.xaxis, (1, 2, 3, 4, 6, 8) if within_decade else (1, 2, 5))
    legend_below(figure, axes)
    return figure, left_out


def draw_parallelism(run: Run, suite: str | None) -> tuple[Figure, list[str]]:
    """Accuracy against content tokens per forward pass of decoders at several settings.

    suite: None for means over the suites. The legend has the area under each curve as `curves` defines it. Raises
    Skipped where no decoder has two settings that were scored beside LLaDA.
    """
    label = "mean accuracy (%)" if suite is None else f"accuracy on {suite_titles(run)[suite]} (%)"
    run = run if suite is None else _only(run, suite)
    found, whole, left_out = curves(run), {}, []
    for title, own in found.groupby("series", sort=False):
        if len(own) == found["suite"].nunique() and own["points"].nunique() == 1:
            whole[title] = own
        else:
            left_out.append(f"without {title}: a suite is missing, or not scored")
    need(whole, "no decoder has two settings that were scored beside LLaDA")
    names = {title: f"{title} ({own['area'].mean():.0f})" for title, own in whole.items()}
    figure, axes = new_figure(2.3, entries=list(names.values()))
    for (title, own), look in zip(whole.items(), looks(), strict=False):
        points = sorted(zip(*(np.mean(own[name].to_list(), axis=0) for name in ("tpf", "accuracy")), strict=True))
        axes.plot(*zip(*points, strict=True), linewidth=0.7, label=names[title], **look)
    axes.set(xlabel="content tokens a forward pass", ylabel=label)
    legend_below(figure, axes)
    return figure, left_out


def front_of(seconds: pd.Series[float], accuracy: pd.Series[float]) -> list[str]:
    """The methods than which none is both as fast and more accurate, or faster and as accurate, fastest first."""
    best, front = float("-inf"), []
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


def draw_anchor(run: Run) -> tuple[Figure, list[str]]:
    """Accuracy and wall-clock speedup of two-stream verification against its anchor, means over the suites.

    Raises Skipped with fewer than two anchors, or if the run was not timed.
    """
    need(timed(run), UNTIMED)
    frame, left_out = tradeoff(run)
    frame = frame.set_index("method")
    series = {
        title: {n: method for n, method in row.items() if method in frame.index}
        for title, row in by_option(run, "anchor", WHOLE).items()
    }
    series = {title: row for title, row in series.items() if len(row) > 1}
    need(series, "it takes two anchors of two-stream verification (--methods anchor)")
    anchors = sorted({n for row in series.values() for n in row}, key=lambda n: (n == WHOLE, n if n != WHOLE else 0))
    figure, (above, below) = new_figure(3.6, rows=2, entries=[*series, "LLaDA"])
    for (name, row), look in zip(series.items(), looks(), strict=False):
        rows = frame.loc[[row[n] for n in anchors if n in row]]
        positions = [i for i, n in enumerate(anchors) if n in row]
        for axes, value in ((above, "accuracy"), (below, "speedup")):
            whiskers = [rows[value] - rows[f"{value}_low"], rows[f"{value}_high"] - rows[value]]
            whiskers = [length.clip(lower=0) for length in whiskers]  # rounding can make a width of 0 negative
            axes.errorbar(positions, rows[value], yerr=whiskers, elinewidth=0.6, linestyle="-", label=name, **look)
    if "llada" in frame.index:
        above.axhline(frame.loc["llada", "accuracy"], color="0.5", linestyle="--", linewidth=0.8, label="LLaDA")
    above.set(ylabel="accuracy (%)")
    below.set(ylabel="wall-clock speedup", xlabel="anchor: unresolved positions per context pass")
    below.set_xticks(range(len(anchors)), [str(n) for n in anchors], minor=False)
    legend_below(figure, above)
    return figure, left_out
