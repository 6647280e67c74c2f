"""Figures of accuracy against seconds or forward passes of a response, of decoders at several
settings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from msgspec import structs

from harness.measures.parallelism import curves, differ_in_one_option, series_of
from harness.measures.table import REFERENCE, method_labels, suite_titles
from harness.methods.presets import TUNED
from harness.records.store import Run
from tables.charts import (
    Drawn,
    draw,
    legend_below,
    looks_of,
    need,
    new_figure,
    tradeoff_of,
)
from tables.series import series_of_rows


def draw_front(run: Run, suite: str | None, named: Mapping[str, str]) -> Drawn:
    """Accuracy against mean seconds of a response, by series, and what was left out.

    A line joins methods that differ in one option. Whiskers are 95% intervals, Wilson's on a suite;
    the band is the interval of LLaDA, as tuned for accuracy if it was tuned. A method that decoded
    only the fewer problems of a run's timed part is left out.

    Args:
        run: as read.
        suite: None for means over the suites.
        named: as `series_of` has it.

    Raises:
        Skipped: LLaDA has no scores, or the run was not timed.
    """
    label = _accuracy_label(run, suite)
    run = run if suite is None else _only(run, suite)
    frame, left_out = tradeoff_of(run)
    frame["milliseconds"] = 1e3 * frame["seconds_per_item"]
    if run.speed:
        labels = method_labels(run)
        incomplete = frame.index[~frame["accuracy_full"]]
        frame = frame.drop(index=incomplete)
        left_out += [
            f"without {labels[name]}: its accuracy is of fewer problems" for name in incomplete
        ]
    rows_of = _rows_by_series(frame, series_of(run, named))
    figure, axes = new_figure(2.3, entries=list(rows_of))
    look = looks_of(run, named)
    dashes = itertools.cycle(("-", "--", ":"))
    for (title, rows), dash in zip(rows_of.items(), dashes, strict=False):
        names = list(rows.index)
        joined = TUNED not in names[0] and differ_in_one_option(run, names)
        draw(
            axes,
            series_of_rows(title, rows, "milliseconds", "accuracy"),
            linestyle=dash if joined else "none",
            linewidth=0.7,
            elinewidth=0.4,
            **look[title],
        )
    _draw_background(axes, frame)
    axes.set(xscale="log", xlabel="milliseconds a response", ylabel=label)
    # Within one decade ticks at 1, 2 and 5 would be too few to read values from.
    within_decade = frame["milliseconds"].max() < 10 * frame["milliseconds"].min()
    ticks = (1, 2, 3, 4, 6, 8) if within_decade else (1, 2, 5)
    axes.xaxis.set_major_locator(LogLocator(subs=ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    legend_below(figure, axes)
    return figure, left_out


def _rows_by_series(
    frame: pd.DataFrame, series: Mapping[str, list[str]]
) -> dict[str, pd.DataFrame]:
    """The rows of each series that has any, fastest first."""
    rows_of = {}
    for title, names in series.items():
        rows = frame.loc[[name for name in names if name in frame.index]]
        if len(rows):
            rows_of[title] = rows.sort_values("milliseconds")
    return rows_of


def _draw_background(axes: Axes, frame: pd.DataFrame) -> None:
    """LLaDA's band, and the front's line."""
    best_llada = f"{REFERENCE}{TUNED}accurate"
    llada = best_llada if best_llada in frame.index else REFERENCE
    if llada in frame.index:
        ends = frame.loc[llada, ["accuracy_low", "accuracy_high"]]
        axes.axhspan(*ends, color="0.95", linewidth=0, zorder=-1)
    front = frame.loc[front_of(frame["milliseconds"], frame["accuracy"])]
    axes.step(
        front["milliseconds"], front["accuracy"], where="post", color="0.8", linewidth=2, zorder=0
    )


def _accuracy_label(run: Run, suite: str | None) -> str:
    return "mean accuracy (%)" if suite is None else f"accuracy on {suite_titles(run)[suite]} (%)"


def draw_parallelism(run: Run, suite: str | None, named: Mapping[str, str]) -> Drawn:
    """Accuracy against content tokens per forward pass of decoders at several settings.

    The legend has the area under each curve as `curves` defines it.

    Args:
        run: as read.
        suite: None for means over the suites.
        named: as `series_of` has it.

    Raises:
        Skipped: no decoder has two settings that were scored with LLaDA.
    """
    label = _accuracy_label(run, suite)
    run = run if suite is None else _only(run, suite)
    frame = curves(run, named)
    suites = frame["suite"].nunique()
    series = {}
    left_out = []
    for title, rows in frame.groupby("series", sort=False):
        # Curves are averaged over suites point by point, so each suite must have one, of as many
        # points.
        if len(rows) < suites or rows["points"].nunique() > 1:
            left_out.append(f"without {title}: a suite is missing, or has fewer scored settings")
            continue
        tpf, accuracy = (np.mean(rows[name].to_list(), axis=0) for name in ("tpf", "accuracy"))
        curve = pd.DataFrame({"tpf": tpf, "accuracy": accuracy}).sort_values(["tpf", "accuracy"])
        name = f"{title} ({rows['area'].mean():.0f})"
        series[str(title)] = series_of_rows(name, curve, "tpf", "accuracy")
    need(series, "no decoder has two settings that were scored beside LLaDA")
    figure, axes = new_figure(2.3, entries=[points.name for points in series.values()])
    look = looks_of(run, named)
    for title, points in series.items():
        draw(axes, points, linewidth=0.7, **look[title])
    axes.set(xlabel="content tokens a forward pass", ylabel=label)
    legend_below(figure, axes)
    return figure, left_out


def front_of(seconds: pd.Series[float], accuracy: pd.Series[float]) -> list[str]:
    """The Pareto front of seconds and accuracy: methods more accurate than all faster ones, fastest
    first."""
    frame = pd.DataFrame({"seconds": seconds, "accuracy": accuracy})
    # Of equally fast methods the most accurate comes first, so that only it can be on the front.
    frame = frame.sort_values(["seconds", "accuracy"], ascending=[True, False], kind="stable")
    better = frame["accuracy"] > frame["accuracy"].cummax().shift(fill_value=-math.inf)
    return list(frame.index[better])


def _only(run: Run, suite: str) -> Run:
    """The run without its other suites."""
    config = structs.replace(run.config, suites={suite: run.config.suites[suite]})
    # A frame without windows has no columns either.
    windows = run.windows[run.windows["suite"] == suite] if len(run.windows) else run.windows
    items = run.items[run.items["suite"] == suite]
    return replace(run, meta=structs.replace(run.meta, config=config), items=items, windows=windows)
