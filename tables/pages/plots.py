"""The figures of a report, drawn by plotly in the page; every point knows the items behind it."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from harness.measures.theory import acceptance_by_position, fef_windows
from tables.charts.palette import MARKERS, PALETTE
from tables.pages.book import Book
from tables.pages.overview import Overview

MOST_POINTS = 4000  # of single items in a figure that stays quick
LAYOUT: dict[str, Any] = {"margin": {"l": 56, "r": 12, "t": 12, "b": 48}}


def figures(book: Book, table: Overview) -> list[tuple[str, dict[str, Any]]]:
    """Name of every figure, its title, and by name of a choice (a suite) its plotly data and layout; without the empty.

    A point's customdata is the address of what is behind it.
    """
    kinds = {
        "front": ("Accuracy against speed", dict(_fronts(book, table))),
        "acceptance": ("Acceptance by position in the window", dict(_acceptances(book))),
        "calls": ("Calls of the model against tokens of the response, item by item", dict(_calls(book))),
    }
    return [
        (name, {"title": title, "choices": {choice: _json(figure) for choice, figure in found.items()}})
        for name, (title, found) in kinds.items()
        if found
    ]


def _json(figure: go.Figure) -> dict[str, Any]:
    """A figure without its template: the page has colors of its own."""
    found: dict[str, Any] = figure.to_plotly_json()
    del found["layout"]["template"]
    return found


def look_of(number: int) -> dict[str, Any]:
    """Color and marker of a series: both differ, so that either suffices to tell two apart."""
    turn = number // len(PALETTE)
    return {"color": PALETTE[number % len(PALETTE)], "symbol": MARKERS[(number + turn) % len(MARKERS)], "size": 9}


def _figure(x: str, y: str, **layout: Any) -> go.Figure:
    figure = go.Figure()
    return figure.update_layout(xaxis_title=x, yaxis_title=y, **LAYOUT, **layout)


def _fronts(book: Book, table: Overview) -> Iterator[tuple[str, go.Figure]]:
    """Of the means, and of every suite."""
    choices: list[tuple[str, int | None]] = [("Mean", None), *((s.title, n) for n, s in enumerate(book.suites))]
    for title, suite in choices:
        figure = _figure("wall-clock speedup over LLaDA", "accuracy (%)", xaxis_type="log")
        for number, series in enumerate(book.series):
            if suite is None:
                frame = table.means[series.run]
                own = frame[frame["method"] == series.method]
            else:
                key = book.suites[suite].key
                frame = table.frames[series.run]
                own = frame[(frame["method"] == series.method) & (frame["suite"] == key)]
                own = own if book.suite_numbers[series.run].get(key) == suite else own.head(0)
            if own.empty or own[["speedup", "accuracy"]].isna().any(axis=None):
                continue
            row = own.iloc[0].to_dict()
            link = f"#/items?series={number}" + ("" if suite is None else f"&suite={suite}")
            figure.add_scatter(
                x=[row["speedup"]],
                y=[row["accuracy"]],
                error_x=_whiskers(row, "speedup"),
                error_y=_whiskers(row, "accuracy"),
                name=series.name,
                mode="markers",
                marker=look_of(number),
                customdata=[link],
                hovertemplate="%{x:.2f}x, %{y:.1f}%",
            )
        if figure.data:
            yield title, figure


def _whiskers(row: dict[Any, Any], name: str) -> dict[str, Any]:
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    if low is None or high is None or pd.isna(low) or pd.isna(high):
        return {"visible": False}
    # Rounding can make an interval of width 0 negative.
    lengths = {"array": [max(0.0, high - row[name])], "arrayminus": [max(0.0, row[name] - low)]}
    return {"type": "data", "symmetric": False, "thickness": 1, "width": 3, **lengths}


def _acceptances(book: Book) -> Iterator[tuple[str, go.Figure]]:
    """Of tested drafts, and of all proposed ones, over all suites."""
    windows = [fef_windows(run, others=True) if len(run.windows) else None for run in book.runs]
    for title, column in (("of tested drafts", "given_tested"), ("of all drafts", "unconditional")):
        figure = _figure("position in the window", "accepted", yaxis_range=[0, 1.03])
        for number, series in enumerate(book.series):
            frame = windows[series.run]
            own = None if frame is None else frame[frame["method"] == series.method]
            if own is None or own.empty:
                continue
            positions = acceptance_by_position(own)
            figure.add_scatter(
                x=positions["position"].tolist(),
                y=[None if pd.isna(value) else round(float(value), 4) for value in positions[column]],
                name=series.name,
                mode="lines+markers",
                marker=look_of(number) | {"size": 6},
                line={"width": 1.5},
                customdata=[f"#/items?series={number}&only=rejected"] * len(positions),
                hovertemplate="position %{x}: %{y:.3f}",
            )
        if figure.data:
            yield title, figure


def _calls(book: Book) -> Iterator[tuple[str, go.Figure]]:
    """Of every suite, a point for an item."""
    if not {"forwards", "content_tokens"} <= set(book.items):
        return
    for suite, each in enumerate(book.suites):
        items = book.items[book.items["suite"] == suite]
        items = items.iloc[:: max(1, -(-len(items) // MOST_POINTS))]
        figure = _figure("tokens before the end of the response", "calls of the model")
        for number in sorted(set(items["series"].tolist())):
            own = items[items["series"] == number]
            figure.add_scatter(
                x=own["content_tokens"].astype(float).tolist(),
                y=own["forwards"].astype(float).tolist(),
                name=book.series[number].name,
                mode="markers",
                marker=look_of(number) | {"size": 6, "opacity": 0.7},
                customdata=[f"#/item?suite={suite}&item={item}&series={number}" for item in own["item"]],
                hovertemplate="%{x} tokens, %{y} calls",
            )
        if figure.data:
            yield each.title, figure
