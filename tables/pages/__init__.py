"""A report's folder: one page, its scripts, styles and data, and the runs' cards; opened from disk
or any web host.

The first page has the main table with intervals, and figures that plotly draws in the page.
"""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import msgspec
import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from harness.errors import UserError, explained
from harness.measures.captions import setting, timing
from harness.measures.table import timed
from harness.measures.theory import acceptance_by_position, fef_windows
from harness.records.store import Run
from model_wrappers.trace import KINDS
from tables.charts import PALETTE
from tables.pages.data import LIKELY, Book, rows, script, texts, traces
from tables.pages.overview import Overview, overview, speeds

HERE = Path(__file__).parent
SCRIPTS = ("core.js", "overview.js", "items.js", "item.js", "player.js", "compare.js", "start.js")
STYLES = ("report.css",)
MARK = ".fef-dllm-report"  # a folder that has this file is a report, and may be replaced by another


def write_site(book: Book, out: Path) -> int:
    """Write the report of a book into a folder, which is made, or replaced if it is a report.

    Returns the number of responses in traced runs that have no trace. Raises UserError if the
    folder holds something else, or cannot be written; it is replaced only by a whole one.
    """
    if out.exists() and not (out / MARK).exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists and holds no report; choose another folder with --out")
    with explained(
        f"cannot write a report to {out}", OSError, instead="choose another folder with --out"
    ):
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as scratch:
            made = Path(scratch) / "made"
            missing = _write(book, made)
            if out.exists():
                out.rename(Path(scratch) / "old")
            made.rename(out)
            return missing


def _write(book: Book, out: Path) -> int:
    for folder in ("assets", "data/text", "data/trace"):
        (out / folder).mkdir(parents=True)
    (out / MARK).touch()
    table = overview(book)
    traced = set()
    films = 0
    for name, film in traces(book):
        _data(out, name, film, packed=True)
        traced |= {series for own in film["of"].values() for series in own}
        films += sum(map(len, film["of"].values()))
    for name, said in texts(book):
        _data(out, name, said, packed=True)
    _data(out, "rows", rows(book))
    _data(out, "figures", figures(book, table))
    _data(out, "speeds", speeds(book))
    _data(out, "book", _contents(book, traced))
    for name in (*SCRIPTS, *STYLES):
        shutil.copyfile(HERE / "assets" / name, out / "assets" / name)
    (out / "assets" / "plotly.min.js").write_text(get_plotlyjs(), encoding="utf-8")
    cards = [card_of(*each) for each in zip(book.runs, book.names, table.frames, strict=True)]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("index.html.jinja").render(
        title=" and ".join(book.names),
        table=table,
        cards=cards,
        scripts=SCRIPTS,
        styles=STYLES,
        several=len(cards) > 1,
    )
    (out / "index.html").write_text(page, encoding="utf-8", errors="xmlcharrefreplace")
    return sum(len(run.items) for run in book.runs if run.config.traced) - films


def _data(out: Path, name: str, value: object, packed: bool = False) -> None:
    (out / "data" / f"{name}.js").write_text(script(name, value, packed), encoding="ascii")


def _contents(book: Book, traced: set[int]) -> dict[str, object]:
    """What the page has to know before it loads anything else."""
    return {
        "runs": list(book.names),
        "series": [
            {
                "name": each.name,
                "run": each.run,
                "reference": each.reference,
                "traced": number in traced,
            }
            for number, each in enumerate(book.series)
        ],
        "suites": [suite.title for suite in book.suites],
        "itemsAFile": book.items_a_file,
        "palette": list(PALETTE),
        "kinds": list(KINDS),
        "likely": LIKELY,
    }


Tree = dict[str, Any] | list[Any] | str


@dataclass(frozen=True)
class Card:
    """What a page says of a run. sections: title -> tree of texts. warnings: sentences."""

    name: str
    summary: tuple[str, ...]
    warnings: tuple[str, ...]
    sections: dict[str, Tree]


def card_of(run: Run, name: str, measured: pd.DataFrame) -> Card:
    """The card of a run. measured: its rows of `table.measure`."""
    meta = run.meta
    scoring = meta.scoring or {}
    warnings = [
        *timing(run),
        *(
            f"{suite} is not scored: {why}"
            for suite, why in (scoring.get("not_scored") or {}).items()
        ),
    ]
    parts: dict[str, Any] = {
        "Run": {
            "name": meta.name,
            "folder": run.folder.name,
            "created": meta.created,
            "configuration": meta.config_hash,
            "items": len(run.items),
            "seconds are for comparison": timed(run),
            "traced": run.config.traced,
        },
        "Configuration": meta.config.to_json(),
        "Environment": meta.environment,
        "Weights": meta.weights,
        "Problems": meta.data,
        "Code": meta.code,
        "Plugins": msgspec.to_builtins(meta.plugins),
        "Sessions": meta.sessions,
        "Scoring": scoring,
    }
    sections = {title: tree_of(part) for title, part in parts.items() if part}
    return Card(name, tuple(setting(measured, run)), tuple(warnings), sections)


def tree_of(value: Any) -> Tree:
    """Any JSON as nested tables and lists of texts."""
    if isinstance(value, dict):
        return {str(name): tree_of(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        plain = all(not isinstance(each, dict | list | tuple) for each in value)
        return (
            ", ".join(str(tree_of(each)) for each in value)
            if plain
            else [tree_of(each) for each in value]
        )
    return (
        {True: "yes", False: "no", None: "-"}[value]
        if isinstance(value, bool) or value is None
        else str(value)
    )


# Marker shapes as plotly calls them; more than colors, so that the two do not repeat together.
SYMBOLS = (
    *("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star"),
    *("pentagon", "hexagon", "hourglass"),
)


TICKS = [2.0**power for power in range(-6, 9)]
SPEEDS = {"type": "log", "tickvals": TICKS, "ticktext": [f"{each:g}x" for each in TICKS]}
LAYOUT: dict[str, Any] = {"margin": {"l": 56, "r": 12, "t": 12, "b": 48}}


def figures(book: Book, table: Overview) -> list[tuple[str, dict[str, Any]]]:
    """Name of every figure, its title, and by name of a choice (a suite) its plotly data and
    layout; without the empty.

    A point's customdata is the address of its items.
    """
    kinds = {
        "front": ("Accuracy against speed", dict(_fronts(book, table))),
        "acceptance": ("Acceptance by position in the window", dict(_acceptances(book))),
    }
    return [
        (
            name,
            {
                "title": title,
                "choices": {choice: _json(figure) for choice, figure in found.items()},
            },
        )
        for name, (title, found) in kinds.items()
        if found
    ]


def _json(figure: go.Figure) -> dict[str, Any]:
    found: dict[str, Any] = figure.to_plotly_json()
    del found["layout"]["template"]  # the page has its colors
    return found


def look_of(number: int) -> dict[str, Any]:
    """Color and marker of a series: both differ, so that either suffices to tell two apart."""
    turn = number // len(PALETTE)
    return {
        "color": PALETTE[number % len(PALETTE)],
        "symbol": SYMBOLS[(number + turn) % len(SYMBOLS)],
        "size": 9,
    }


def _figure(x: str, y: str, **layout: Any) -> go.Figure:
    return go.Figure().update_layout(**LAYOUT, **layout).update_layout(xaxis_title=x, yaxis_title=y)


def _fronts(book: Book, table: Overview) -> Iterator[tuple[str, go.Figure]]:
    """Of the means, and of every suite."""
    choices: list[tuple[str, int | None]] = [
        ("Mean", None),
        *((s.title, n) for n, s in enumerate(book.suites)),
    ]
    for title, suite in choices:
        figure = _figure("wall-clock speedup over LLaDA", "accuracy (%)", xaxis=SPEEDS)
        for number, series in enumerate(book.series):
            frame = (table.means if suite is None else table.frames)[series.run]
            own = frame[frame["method"] == series.method]
            if suite is not None:
                key = book.suites[suite].key
                own = own[
                    (own["suite"] == key) & (book.suite_numbers[series.run].get(key) == suite)
                ]
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
    low = row.get(f"{name}_low")
    high = row.get(f"{name}_high")
    if pd.isna(low) or pd.isna(high):
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
                y=[
                    None if pd.isna(value) else round(float(value), 4)
                    for value in positions[column]
                ],
                name=series.name,
                mode="lines+markers",
                marker=look_of(number) | {"size": 6},
                line={"width": 1.5},
                customdata=[f"#/items?series={number}&only=rejected"] * len(positions),
                hovertemplate="position %{x}: %{y:.3f}",
            )
        if figure.data:
            yield title, figure
