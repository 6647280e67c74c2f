"""The figures of a run: one column wide, readable in grey, the same bytes every time.

Series are derived from the run's configuration, so that a new decoder needs no entry here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from msgspec import structs

from harness.measures.intervals import tradeoff
from harness.measures.parallelism import by_option, curves, differ_in_one_option, series_of
from harness.measures.samples import sampled
from harness.measures.table import PAIR, REFERENCE, method_labels, over_suites, suite_titles
from harness.methods.presets import TUNED
from harness.records.store import Run
from tables.series import PALETTE, Series, series_of_rows

WIDTH = 3.3  # inches: a column of a two-column page
MARKERS = "osD^vP*X<>phd"
MOST_SERIES = 20  # markers that a reader can still find in the legend
MOST_IN_COLUMN = 27  # characters of a label that leave room for a second column
Drawn = tuple[Figure, list[str]]  # and a line for each thing that it leaves out


class Skipped(Exception):
    """A figure cannot be drawn from these records; the message says why."""


def need(condition: object, why: str) -> None:
    """Raise Skipped with the reason `why` if what a figure needs is missing (false or empty)."""
    if not condition:
        raise Skipped(why)


def new_figure(height: float, rows: int = 1, entries: Sequence[str] = ()) -> tuple[Figure, Any]:
    """A figure one column wide, and its axes: one, or an array of `rows` that share x.

    Args:
        height: in inches, without the legend below.
        rows: of axes.
        entries: of the legend, if there is one.
    """
    lines = -(-len(entries) // _columns(entries))
    figure = Figure(figsize=(WIDTH, height + 0.14 * lines), layout="constrained")
    return figure, figure.subplots(rows, 1, sharex=True)


def legend_below(figure: Figure, axes: Axes) -> None:
    """A legend of the axes' series under the figure, in as many columns as fit."""
    handles, labels = axes.get_legend_handles_labels()
    columns = _columns(labels)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, columnspacing=1.0)


def _columns(labels: Sequence[object]) -> int:
    return 1 if max((len(str(label)) for label in labels), default=0) > MOST_IN_COLUMN else 2


def draw(axes: Axes, series: Series, **look: Any) -> None:
    """Draw a series on the axes, with whiskers where it has any; look: keywords of matplotlib."""
    look = {"label": series.name, **look}
    if series.y_whiskers is None:
        axes.plot(series.x, series.y, **look)
    else:
        axes.errorbar(series.x, series.y, series.y_whiskers, **{"elinewidth": 0.6} | look)


def looks() -> Iterator[dict[str, Any]]:
    """Endless markers, filled and open by turns, in the palette's colours."""
    # 13 markers and 7 colours have no common divisor, so that pairs repeat late; turns of filled
    # and open ones tell neighbours apart in grey.
    for number in itertools.count():
        turn, position = divmod(number, len(MARKERS))
        yield {
            "marker": MARKERS[position],
            "fillstyle": "none" if (turn + position) % 2 else "full",
            "color": PALETTE[number % len(PALETTE)],
        }


def looks_of(run: Run, named: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The looks of a run's series by title, the same in all figures of the run.

    Args:
        run: as read.
        named: patterns of methods by the title of a series, for `series_of`.
    """
    return dict(zip(series_of(run, named), looks(), strict=False))


def tradeoff_of(run: Run) -> tuple[pd.DataFrame, list[str]]:
    """Accuracy and speed by method, and lines on what is left out. Raises Skipped if no method has
    both."""
    frame, left_out = tradeoff(run)
    need(not frame.empty, "; ".join(left_out))
    return frame.set_index("method"), left_out


def draw_pass_at_k(runs: Sequence[Run]) -> Drawn:
    """pass@k against k, means over the suites: a panel for each run, in it a line for each method.

    Args:
        runs: of several samples per problem, each at one temperature; the legend is of the first.
    """
    figure, _ = new_figure(1.7 * len(runs), len(runs), list(method_labels(runs[0]).values()))
    methods = dict.fromkeys(name for run in runs for name in run.config.methods)
    look_of = dict(zip(methods, looks(), strict=False))
    for axes, run in zip(figure.axes, runs, strict=True):
        counts = range(1, len(run.config.draws) + 1)
        names = [f"pass_at_{k}" for k in counts]
        frame = sampled(run, {str(k): k for k in counts}).reindex(columns=[*PAIR, *names])
        means = over_suites(frame, list(suite_titles(run)), names)
        for method, heights in zip(means.index, means.to_numpy(), strict=True):
            line = Series(method_labels(run)[method], counts, heights)
            draw(axes, line, linestyle="-", **look_of[method])
        axes.set(title=f"temperature {run.config.temperature:g}", ylabel="pass@k (%)")
    figure.axes[-1].set(xlabel="samples $k$")
    legend_below(figure, figure.axes[0])
    return figure, []


WHOLE = "whole"  # the anchor of a step that has one context
ANCHOR = "anchor: unresolved positions per context pass"


def draw_option(run: Run, option: str, default: Any = None, label: str = "") -> Drawn:
    """Accuracy and wall-clock speedup by an option, means over the suites; a line a decoder.

    Args:
        run: as read.
        option: an option or a length of some decoder.
        default: the value where a method does not set it (None: as the run recorded it).
        label: of the axis (default: the option).

    Raises:
        Skipped: no two methods differ in this option alone, or the run was not timed.
    """
    frame, left_out = tradeoff_of(run)
    by_title = {}
    for title, methods in by_option(run, option, default).items():
        scored = {value: method for value, method in methods.items() if method in frame.index}
        if len(scored) > 1:
            by_title[title] = scored
    need(by_title, f"it takes two methods with scores that differ in {option} alone")
    places = _places(set(itertools.chain(*by_title.values())))
    figure, (above, below) = new_figure(3.6, rows=2, entries=[*by_title, "LLaDA"])
    for (name, methods), look in zip(by_title.items(), looks(), strict=False):
        shown = [value for value in places if value in methods]
        rows = frame.loc[[methods[value] for value in shown]]
        rows = rows.assign(place=[places[value] for value in shown])
        draw(above, series_of_rows(name, rows, "place", "accuracy"), linestyle="-", **look)
        draw(below, series_of_rows(name, rows, "place", "speedup"), linestyle="-", **look)
    if REFERENCE in frame.index:
        accuracy = frame.loc[REFERENCE, "accuracy"]
        above.axhline(accuracy, color="0.5", linestyle="--", linewidth=0.8, label="LLaDA")
    above.set(ylabel="accuracy (%)")
    below.set(ylabel="wall-clock speedup", xlabel=label or option)
    below.set_xticks(list(places.values()), list(map(str, places)), minor=False)
    legend_below(figure, above)
    return figure, left_out


def _places(values: set[Any]) -> dict[Any, Any]:
    """The place of each value on an axis: numbers at themselves; if any is no number, all in a
    row."""
    ordered = sorted(values, key=_by_size)
    numbers = all(isinstance(value, int | float) for value in ordered)
    return dict(zip(ordered, ordered if numbers else range(len(ordered)), strict=True))


def _by_size(value: Any) -> tuple[bool, float, str]:
    """A key to sort by: numbers in their order, then texts in theirs."""
    number = isinstance(value, int | float)
    return not number, value if number else 0, str(value)


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
        Skipped: LLaDA has no scores, the run was not timed, or there are more than MOST_SERIES.
    """
    label = _accuracy_label(run, suite)
    run = run if suite is None else _only(run, suite)
    frame, left_out = tradeoff_of(run)
    frame["milliseconds"] = 1e3 * frame["seconds_per_item"]
    frame = frame.dropna(subset=["milliseconds"])
    if run.speed:
        labels = method_labels(run)
        incomplete = frame.index[~frame["accuracy_full"]]
        frame = frame.drop(index=incomplete)
        left_out += [
            f"without {labels[name]}: its accuracy is of fewer problems" for name in incomplete
        ]
    rows_of = _rows_by_series(frame, series_of(run, named))
    need(rows_of, "; ".join(left_out))
    need(
        len(rows_of) <= MOST_SERIES,
        f"{len(rows_of)} series are too many to distinguish; at most {MOST_SERIES} are drawn",
    )
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
