"""A report's first page: the main table of all runs, the means first, and its figures."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from harness.measures.intervals import means, paired, with_intervals
from harness.measures.marks import with_marks
from harness.measures.table import MEAN, checked_items, checkpoint_names, measure, timed
from harness.measures.theory import acceptance_by_position, fef_windows
from harness.stats import speedup_intervals
from tables.pages.data import Book
from tables.series import PALETTE, Series, Whiskers, series_of_rows
from tables.sheets import COLUMNS, MEAN_TITLE, METRICS, columns_of, with_checkpoints
from tables.sheets.suites import MAIN
from tables.table import Column, Row, Table, rows_of

# Marker shapes as plotly calls them; more than colors, so that the two do not repeat together.
SYMBOLS = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "triangle-down",
    "cross",
    "x",
    "star",
    "pentagon",
    "hexagon",
    "hourglass",
)
TICKS = [2.0**power for power in range(-6, 9)]
SPEEDS = {"type": "log", "tickvals": TICKS, "ticktext": [f"{tick:g}x" for tick in TICKS]}
LAYOUT: dict[str, Any] = {"margin": {"l": 56, "r": 12, "t": 12, "b": 48}}


def numbers_of_runs(book: Book) -> pd.DataFrame:
    """One frame of all runs, with intervals, marks and means.

    Its methods are numbers of the book's series and its suites numbers of the book's suites, or
    MEAN, both as texts.
    """
    frames = []
    for number, (run, suites) in enumerate(zip(book.runs, book.suite_numbers, strict=True)):
        pairs = paired(run)
        frame = with_intervals(with_marks(measure(run), run), pairs)
        over = list(frame["suite"].unique())
        # A mean over some of the book's suites is not comparable with the others. A suite that no
        # row has makes it NaN.
        if len(suites) < len(book.suites):
            over.append("of another run")
        frame = pd.concat([frame, means(frame, over, pairs)])
        series = {method: str(n) for (r, method), n in book.series_numbers.items() if r == number}
        named = {suite: str(n) for suite, n in suites.items()} | {MEAN: MEAN}
        methods = frame["method"].map(series)
        frames.append(frame.assign(method=methods, suite=frame["suite"].map(named), source=number))
    return pd.concat(frames, ignore_index=True)


def choices(book: Book) -> dict[str, str]:
    """The titles of the table's groups of columns: the mean, then each suite by its number."""
    suites = {str(number): suite.title for number, suite in enumerate(book.suites)}
    return {MEAN: MEAN_TITLE, **suites}


def main_table(book: Book, frame: pd.DataFrame) -> Table:
    """The table of a book, from `numbers_of_runs`."""
    metrics = [*METRICS, *COLUMNS["ends"]]
    columns = columns_of(metrics, choices(book), any(timed(run) for run in book.runs))
    labels = {str(number): series.name for number, series in enumerate(book.series)}
    rows = rows_of(frame, columns, labels)
    names = [checkpoint_names(book.runs[series.run], series.method) for series in book.series]
    return Table("main", MAIN, with_checkpoints(columns, rows, names), rows)


def link(row: Row, column: Column) -> str:
    """The address in the report of the items behind a number of the table."""
    return address(row.key, column.suite)


def address(series: object, suite: str) -> str:
    """The address in the report of a series' items on a suite, or on all suites for MEAN."""
    where = f"#/items?series={series}"
    return where if suite == MEAN else f"{where}&suite={suite}"


def figures(book: Book, frame: pd.DataFrame) -> list[tuple[str, dict[str, Any]]]:
    """The figures that are not empty: names, each with a title and its choices.

    The choices are plotly's data and layout by the name of a choice, such as a suite. A point's
    customdata is the address of its items.
    """
    kinds = {
        "front": ("Accuracy against speed", dict(_fronts(book, frame))),
        "acceptance": ("Acceptance by position in the window", dict(_acceptances(book))),
    }
    return [
        (name, {"title": title, "choices": {key: _json(figure) for key, figure in made.items()}})
        for name, (title, made) in kinds.items()
        if made
    ]


def _json(figure: go.Figure) -> dict[str, Any]:
    json: dict[str, Any] = figure.to_plotly_json()
    del json["layout"]["template"]  # the page has its colors
    return json


def look_of(number: int) -> dict[str, Any]:
    """Color and marker of a series: both differ, so that either suffices to tell two apart."""
    turn = number // len(PALETTE)
    return {
        "color": PALETTE[number % len(PALETTE)],
        "symbol": SYMBOLS[(number + turn) % len(SYMBOLS)],
    }


def _figure(x: str, y: str, **layout: Any) -> go.Figure:
    return go.Figure().update_layout(**LAYOUT, **layout).update_layout(xaxis_title=x, yaxis_title=y)


def _draw(
    figure: go.Figure, series: Series, number: int, link: str, size: int, **style: Any
) -> None:
    """A series as plotly draws it; each point leads to a link."""
    figure.add_scatter(
        x=list(series.x),
        y=[None if pd.isna(value) else round(value, 4) for value in series.y],
        error_x=_error(series.x_whiskers),
        error_y=_error(series.y_whiskers),
        name=series.name,
        marker=look_of(number) | {"size": size},
        customdata=[link] * len(series.x),
        **style,
    )


def _error(whiskers: Whiskers | None) -> dict[str, Any]:
    if whiskers is None:
        return {"visible": False}
    below, above = whiskers
    lengths = {"array": above, "arrayminus": below}
    return {"type": "data", "symmetric": False, "thickness": 1, "width": 3, **lengths}


def _fronts(book: Book, frame: pd.DataFrame) -> Iterator[tuple[str, go.Figure]]:
    """Accuracy against speedup: a figure of the means, and one of every suite."""
    known = frame.dropna(subset=["speedup", "accuracy"])
    for suite, title in choices(book).items():
        figure = _figure("wall-clock speedup over LLaDA", "accuracy (%)", xaxis=SPEEDS)
        for number, series in enumerate(book.series):
            rows = known[(known["method"] == str(number)) & (known["suite"] == suite)]
            if len(rows):
                point = series_of_rows(series.name, rows, "speedup", "accuracy")
                style = {"mode": "markers", "hovertemplate": "%{x:.2f}x, %{y:.1f}%"}
                _draw(figure, point, number, address(number, suite), 9, **style)
        if figure.data:
            yield title, figure


def _acceptances(book: Book) -> Iterator[tuple[str, go.Figure]]:
    """Acceptance by position over all suites: a figure of tested drafts, and one of all drafts."""
    windows = [fef_windows(run, others=True) for run in book.runs]
    style = {
        "mode": "lines+markers",
        "line": {"width": 1.5},
        "hovertemplate": "position %{x}: %{y:.3f}",
    }
    for title, share in (("of tested drafts", "given_tested"), ("of all drafts", "unconditional")):
        figure = _figure("position in the window", "accepted", yaxis_range=[0, 1.03])
        for number, series in enumerate(book.series):
            of_run = windows[series.run]
            positions = acceptance_by_position(of_run[of_run["method"] == series.method])
            if len(positions):
                line = series_of_rows(series.name, positions, "position", share)
                items = f"{address(number, MEAN)}&only=rejected"
                _draw(figure, line, number, items, 6, **style)
        if figure.data:
            yield title, figure


def speeds(book: Book) -> dict[str, list[list[list[float | None]]]]:
    """95% intervals of the speed of every two series, by the number of a suite; "" is the mean of
    all suites.

    A value is [low, high] of the row's seconds / the column's, for S series in shape (S, S, 2).
    """
    runs = [(number, run) for number, run in enumerate(book.runs) if timed(run)]
    # As texts: categoricals of two runs have different categories.
    dtypes = {"method": str, "suite": str}
    items = [book.numbered(number, checked_items(run).astype(dtypes)) for number, run in runs]
    if not items:
        return {}
    # The seconds of a problem are those of all its seeds.
    problems = pd.concat(items).groupby(["suite", "problem", "series"])["seconds"]
    totals = problems.sum(min_count=1).unstack("series")
    # Of a run that has its seconds from another only the problems of that one count.
    known = totals.reindex(columns=range(len(book.series))).dropna(how="all")
    parts: dict[str, Sequence[Any]] = {
        str(suite): [rows.to_numpy(float)] for suite, rows in known.groupby(level="suite")
    }
    # A mean over fewer suites than the table's would be another mean.
    if len(parts) == len(book.suites):
        parts[""] = [rows for (rows,) in parts.values()]
    return {name: _json_numbers(speedup_intervals(seconds)) for name, seconds in parts.items()}


def _json_numbers(ends: Any) -> list[list[list[float | None]]]:
    # JSON has no NaN.
    rounded = np.round(np.moveaxis(ends, 0, -1), 4).astype(object)
    rounded[pd.isna(rounded)] = None
    numbers: list[list[list[float | None]]] = rounded.tolist()
    return numbers
