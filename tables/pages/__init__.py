"""A report's folder: one page, its scripts, styles and data, and the runs' cards; opened from disk or any web host."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import msgspec
import pandas as pd
from plotly.offline import get_plotlyjs

from harness.errors import UserError, explained
from harness.measures.table import timed
from harness.records.files import KINDS
from harness.records.store import Run
from tables.charts import PALETTE
from tables.pages.data import LIKELY, Book, rows, script, texts, traces
from tables.pages.overview import figures, overview
from tables.sheets.captions import setting, timing

HERE = Path(__file__).parent
SCRIPTS = ("core.js", "overview.js", "items.js", "item.js", "player.js", "compare.js", "start.js")
STYLES = ("report.css",)
MARK = ".fef-dllm-report"  # a folder that has this file is a report, and may be replaced by another


def write_site(book: Book, out: Path) -> int:
    """Write the report of a book into a folder, which is made, or replaced if it is a report.

    Returns the number of responses in traced runs that have no trace. Raises UserError if the folder holds something
    else, or cannot be written; it is replaced only by a whole one.
    """
    if out.exists() and not (out / MARK).exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists and holds no report; choose another folder with --out")
    with explained(f"cannot write a report to {out}", OSError, instead="choose another folder with --out"):
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
    traced, films = set(), 0
    for name, film in traces(book):
        _data(out, name, film, packed=True)
        traced |= {series for own in film["of"].values() for series in own}
        films += sum(map(len, film["of"].values()))
    for name, said in texts(book):
        _data(out, name, said, packed=True)
    _data(out, "rows", rows(book))
    _data(out, "figures", figures(book, table))
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
        title=" and ".join(book.names), table=table, cards=cards, scripts=SCRIPTS, styles=STYLES, several=len(cards) > 1
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
            {"name": each.name, "run": each.run, "reference": each.reference, "traced": number in traced}
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
        *(f"{suite} is not scored: {why}" for suite, why in (scoring.get("not_scored") or {}).items()),
        *(f"Scoring: this machine did not enforce {each}." for each in scoring.get("not_enforced") or []),
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
        return ", ".join(str(tree_of(each)) for each in value) if plain else [tree_of(each) for each in value]
    return {True: "yes", False: "no", None: "-"}[value] if isinstance(value, bool) or value is None else str(value)
