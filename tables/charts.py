"""The figures of a run: one column wide, readable in grey, the same bytes every time.

Series are derived from the run's configuration, so that a new decoder needs no entry here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from harness.measures.intervals import UNTIMED, tradeoff
from harness.measures.parallelism import by_option, series_of
from harness.measures.samples import sampled
from harness.measures.table import PAIR, REFERENCE, method_labels, over_suites, suite_titles, timed
from harness.measures.theory import WINDOW, theory
from harness.methods.presets import prefix_conditioned
from harness.records.store import Run
from tables.series import PALETTE, Series, acceptances, series_of_rows
from tables.sheets.suites import ONLY_ABLATION

WIDTH = 3.3  # inches: a column of a two-column page
MARKERS = "osD^vP*X<>phd"
MOST_IN_COLUMN = 27  # characters of a label that leave room for a second column
LINES = ("-", "--", "-.", ":")
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
    if series.x_whiskers is None and series.y_whiskers is None:
        axes.plot(series.x, series.y, **look)
        return
    ends = {"xerr": series.x_whiskers, "yerr": series.y_whiskers, "elinewidth": 0.6}
    axes.errorbar(series.x, series.y, **ends | look)


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


Looks = dict[str, dict[str, Any]]


def looks_of(run: Run, named: Mapping[str, str]) -> tuple[Looks, Looks]:
    """The looks of a run's series by title, and of its methods by name.

    They are the same in all figures of a run, and those of a series also are its first method's.

    Args:
        run: as read.
        named: patterns of methods by the title of a series, for `series_of`.
    """
    series = series_of(run, named)
    titles = {names[0]: title for title, names in series.items() if names}
    others = [name for name in run.config.methods if name not in titles]
    # One iterator for both, so that no method looks like another's series.
    endless = looks()
    by_title = dict(zip(series, endless, strict=False))
    by_name = dict(zip(others, endless, strict=False))
    by_name |= {name: by_title[title] for name, title in titles.items()}
    return by_title, by_name


# Line styles of the acceptance expected under independence, one per method.
EXPECTED_LINES = ("--", ":", "-.", (0, (5, 3, 1, 1, 1, 1)))
MOST_CURVES = len(EXPECTED_LINES)


def tradeoff_of(run: Run) -> tuple[pd.DataFrame, list[str]]:
    """Accuracy and speed by method, and lines on what is left out. Raises Skipped if no method has
    both."""
    frame, left_out = tradeoff(run)
    need(not frame.empty, "; ".join(left_out))
    return frame.set_index("method"), left_out


def draw_acceptance(run: Run, named: Mapping[str, str]) -> Drawn:
    """Acceptance by position in the window over all suites, and what independence predicts.

    Above: of tested drafts, below: of all proposed ones. At most four methods are drawn, FeF-DLLM's
    first; methods of an ablation alone only where there are no others. Raises Skipped if no method
    has windows.
    """
    labels = method_labels(run)
    fef = prefix_conditioned(run.config)
    order = [*fef, *(name for name in labels if name not in fef)]
    drafts = acceptances(run, {name: labels[name] for name in order})
    need(drafts, "no method of this run has speculative windows")
    drafts = [draft for draft in drafts if draft.method not in ONLY_ABLATION] or drafts
    shown = drafts[:MOST_CURVES]
    # Each method has two entries in the legend: measured, and expected under independence.
    entries = [draft.tested.name for draft in shown for _ in range(2)]
    figure, (above, below) = new_figure(3.0, rows=2, entries=entries)
    look_by_name = looks_of(run, named)[1]
    for draft, line in zip(shown, EXPECTED_LINES, strict=False):
        look = look_by_name[draft.method]
        style = {**look, "linestyle": "-", "markersize": 3.5, "linewidth": 0.7}
        draw(above, draft.tested, **style)
        draw(below, draft.proposed, **style)
        expected = {"color": look["color"], "linestyle": line, "linewidth": 1.2}
        above.axhline(draft.alpha, **expected)
        draw(
            below, draft.independent, **expected, label=rf"independent, $\alpha$={draft.alpha:.3f}"
        )
    above.set(ylabel="accepted / tested", ylim=(None, 1.02))
    below.set(ylabel="accepted / proposed", xlabel="position in the window", ylim=(0, 1.04))
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_below(figure, below)
    return figure, [f"without {draft.tested.name}" for draft in drafts[MOST_CURVES:]]


EXPECTED = ("committed_per_window", "expected_committed", "expected_committed_windows")
SPEEDS = ("speedup", "forward_speedup")


def draw_window_size(run: Run) -> Drawn:
    """Committed length and speedup against window size, of methods that differ in it alone; means
    over the suites.

    Above: committed tokens per window, measured and as Theorem 2 predicts, of the first series of
    such methods. Below: the speedups of all series. Raises Skipped with fewer than two window
    sizes, or if the run was not timed.
    """
    need(timed(run), UNTIMED)
    frame = theory(run)
    means = over_suites(frame, list(frame["suite"].unique()), ["window", *EXPECTED, *SPEEDS])
    by_title = {}
    for title, methods in by_option(run, "window", WINDOW).items():
        rows = means[means.index.isin(methods.values())].sort_values("window")
        if len(rows) > 1:
            by_title[title] = rows
    need(
        by_title,
        "it takes two methods that differ in the window size alone (--methods window-size)",
    )
    prefixes = {title: f"{title}, " if len(by_title) > 1 else "" for title in by_title}
    entries = [f"{prefix}forward passes" for prefix in prefixes.values()] * 2
    figure, (above, below) = new_figure(3.6, rows=2, entries=entries)
    first = next(iter(by_title.values()))
    names = ("measured", "$E[C_k]$, windows of $k$", "$E[C_b]$, actual lengths")
    styles = ("o-", "s--", "^:")
    for name, column, style, color in zip(names, EXPECTED, styles, PALETTE, strict=False):
        draw(
            above,
            series_of_rows(name, first, "window", column),
            color=color,
            fillstyle="full" if column == EXPECTED[0] else "none",
            marker=style[0],
            linestyle=style[1:],
        )
    above.set(ylabel="committed per window")
    above.legend()
    for (title, rows), look in zip(by_title.items(), looks(), strict=False):
        seconds = series_of_rows(f"{prefixes[title]}wall-clock", rows, "window", "speedup")
        forwards = f"{prefixes[title]}forward passes"
        draw(below, seconds, linestyle="-", **look)
        calls = series_of_rows(forwards, rows, "window", "forward_speedup")
        draw(below, calls, **(look | {"linestyle": "-.", "fillstyle": "none"}))
    drawn = pd.concat(list(by_title.values()))
    below.set(xlabel="window size $k$", ylabel="speedup over LLaDA", xscale="log")
    # Ticks at the window sizes that ran: between them nothing was measured.
    ticks = sorted(drawn["window"].astype(int).unique())
    below.set_xticks(ticks, [str(size) for size in ticks], minor=False)
    below.xaxis.set_minor_locator(NullLocator())
    below.set_ylim(0, 1.1 * drawn[list(SPEEDS)].to_numpy().max())
    legend_below(figure, below)
    return figure, []


def draw_pass_at_k(runs: Sequence[Run]) -> Drawn:
    """pass@k against k, means over the suites: a panel for each run, in it a line for each method.

    Args:
        runs: of several samples per problem, each at one temperature; the legend is of the first.
    """
    figure, _ = new_figure(1.7 * len(runs), len(runs), list(method_labels(runs[0]).values()))
    for axes, run in zip(figure.axes, runs, strict=True):
        counts = range(1, len(run.config.draws) + 1)
        names = [f"pass_at_{k}" for k in counts]
        frame = sampled(run, {str(k): k for k in counts}).reindex(columns=[*PAIR, *names])
        means = over_suites(frame, list(suite_titles(run)), names)
        look_by_name = looks_of(run, {})[1]
        for method, heights in zip(means.index, means.to_numpy(), strict=True):
            line = Series(method_labels(run)[method], counts, heights)
            draw(axes, line, linestyle="-", **look_by_name[method])
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
