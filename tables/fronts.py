"""Figures of accuracy against seconds or forward passes of a response, of decoders at several
settings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox
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
    plain_log,
    tradeoff_of,
)
from tables.series import Series, series_of_rows

# Distances of a name from its dot, in 1/72 inch, the nearest first.
DISTANCES = (5, 11, 18, 27, 38)
ANGLES = [math.pi / 4 * side for side in range(8)]
# More names than these are read better in a legend.
MOST_NAMES = 10


def _alignment(direction: float, beyond: str, short: str) -> str:
    """How a text is aligned in one dimension.

    Args:
        direction: cosine or sine of the angle from the point to the text.
        beyond: the alignment of a text on the right of its point, or above it.
        short: that of one on the left, or below.
    """
    # Cosine and sine of a right angle are 0 but for rounding.
    if abs(direction) < 0.1:
        return "center"
    return beyond if direction > 0 else short


def name_points(figure: Figure, axes: Axes, series: Sequence[Series]) -> bool:
    """Write each series' name next to its highest point, without covering any point or name.

    Whiskers are avoided too where there is room.

    Args:
        figure, axes: where the series are drawn already.
        series: those to name; a line joins a name to its point unless they are next to each other.

    Returns:
        Whether all names were written; if one has no room, none is.
    """
    figure.draw_without_rendering()  # the layout, which decides what covers what
    size = figure.dpi / 72 * 5  # of a dot, in pixels
    taken = [box for points in series for box in _dots(axes, points, size)]
    whiskers = [box for points in series for box in _whiskers(axes, points)]
    written: list[Annotation] = []
    # All or none: a figure with some names would need a legend as well.
    for points in series:
        text = _write_name(axes, points, [*taken, *whiskers]) or _write_name(axes, points, taken)
        if text is None:
            for other in written:
                other.remove()
            return False
        taken.append(_text_box(text))
        written.append(text)
    return True


def _write_name(axes: Axes, points: Series, taken: Sequence[Bbox]) -> Annotation | None:
    """Write a series' name at the nearest place where it covers nothing.

    Args:
        axes: to write on.
        points: the series.
        taken: what must not be covered, in pixels.

    Returns:
        The text; None, with nothing written, if there is no place.
    """
    inside = axes.get_window_extent()
    best = int(np.argmax(points.y))
    for distance, angle in itertools.product(DISTANCES, ANGLES):
        x = math.cos(angle)
        y = math.sin(angle)
        line = {"arrowstyle": "-", "color": "0.6", "linewidth": 0.4}
        text = axes.annotate(
            points.name,
            (points.x[best], points.y[best]),
            (distance * x, distance * y),
            textcoords="offset points",
            ha=_alignment(x, "left", "right"),
            va=_alignment(y, "bottom", "top"),
            fontsize=6,
            arrowprops=line if distance > DISTANCES[0] else None,
        )
        # What a text covers is known only once it is placed: one that collides is removed again.
        box = _text_box(text)
        within = inside.contains(box.x0, box.y0) and inside.contains(box.x1, box.y1)
        if within and not any(box.overlaps(other) for other in taken):
            return text
        text.remove()
    return None


def _text_box(text: Annotation) -> Bbox:
    """What a text covers, in pixels, without its line."""
    # The first call places the text, but its result includes the line, which may cross other
    # things; the base class gives the text alone.
    text.get_window_extent()
    return Text.get_window_extent(text)


def _dots(axes: Axes, points: Series, size: float) -> list[Bbox]:
    """What the points of a series cover, in pixels."""
    pixels = axes.transData.transform(list(zip(points.x, points.y, strict=True)))
    return [Bbox.from_bounds(x - size / 2, y - size / 2, size, size) for x, y in pixels]


def _whiskers(axes: Axes, points: Series) -> list[Bbox]:
    """What the vertical intervals of a series cover, in pixels."""
    if points.y_whiskers is None:
        return []
    lines = zip(points.x, points.y, *points.y_whiskers, strict=True)
    ends = [[(x, y - below), (x, y + above)] for x, y, below, above in lines]
    return [Bbox(axes.transData.transform(line)).padded(1) for line in ends]


def draw_front(run: Run, suite: str | None = None, named: Mapping[str, str] | None = None) -> Drawn:
    """Accuracy against mean seconds of a response, by series, and what was left out.

    A line joins methods that differ in one option. Whiskers are 95% intervals, Wilson's on a suite;
    the band is the interval of LLaDA, as tuned for accuracy if it was tuned. A method that decoded
    only the fewer problems of a run's timed part is left out.

    Args:
        run: as read.
        suite: None for means over the suites.
        named: as `series_of` has it.

    Raises:
        Skipped: the run was not timed, or no method was tuned and no series but LLaDA's has two
            scored methods.
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
    rows_of = _rows_by_series(frame, series_of(run, named or {}))
    tuned = any(TUNED in name for name in frame.index)
    several = any(len(rows) > 1 and REFERENCE not in rows.index for rows in rows_of.values())
    need(tuned or several, "no decoder but LLaDA has two settings that were scored")
    figure, axes = new_figure(2.9)
    look = looks_of(run, named)[0]
    series = []
    dashes = itertools.cycle(("-", "--", ":"))
    for (title, rows), dash in zip(rows_of.items(), dashes, strict=False):
        names = list(rows.index)
        joined = TUNED not in names[0] and differ_in_one_option(run, names)
        series.append(series_of_rows(title, rows, "milliseconds", "accuracy"))
        draw(
            axes,
            series[-1],
            linestyle=dash if joined else "none",
            linewidth=0.7,
            elinewidth=0.4,
            **look[title],
        )
    _draw_background(axes, frame)
    axes.set(xscale="log", xlabel="milliseconds a response", ylabel=label)
    # Within one decade ticks at 1, 2 and 5 would be too few to read values from.
    within_decade = frame["milliseconds"].max() < 10 * frame["milliseconds"].min()
    plain_log(axes.xaxis, (1, 2, 3, 4, 6, 8) if within_decade else (1, 2, 5))
    # A legend takes height below the axes: the size is that of a figure made with one.
    if len(series) > MOST_NAMES or not name_points(figure, axes, series):
        figure.set_size_inches(*new_figure(2.3, entries=list(rows_of))[0].get_size_inches())
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


def draw_parallelism(
    run: Run, suite: str | None = None, named: Mapping[str, str] | None = None
) -> Drawn:
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
    look = looks_of(run, named)[0]
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
