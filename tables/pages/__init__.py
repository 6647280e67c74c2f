"""A report's folder: one page, its scripts, styles and data, and the runs' cards; opened from disk
or any web host.

The first page has the main table with intervals, and figures that plotly draws in the page.
"""

import json
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

import msgspec
from plotly.offline import get_plotlyjs

from harness.errors import UserError, explained
from harness.measures.card import card_of
from harness.measures.table import measure
from harness.records.store import Run
from model_wrappers.trace import KINDS
from tables.output import environment
from tables.pages.data import PROB_PARTS, Book, rows, script, texts, traces
from tables.pages.overview import figures, link, main_table, numbers_of_runs, speeds
from tables.series import PALETTE

HERE = Path(__file__).parent
SCRIPTS = ("core.js", "overview.js", "items.js", "item.js", "player.js", "compare.js", "start.js")
STYLES = ("report.css",)
MARK = ".fef-dllm-report"  # a folder that has this file is a report, and may be replaced by another


def write_site(book: Book, out: Path) -> int:
    """Write the report of a book into a folder, which may hold an older report.

    Args:
        book: the runs.
        out: the folder; it is made, or replaced once the new report is complete.

    Returns:
        The number of responses in traced runs that have no trace.

    Raises:
        UserError: the folder holds something else than a report, or cannot be written.
    """
    if out.exists() and not (out / MARK).exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists and holds no report; choose another folder with --out")
    with explained(
        f"cannot write a report to {out}", OSError, instead="choose another folder with --out"
    ):
        out.parent.mkdir(parents=True, exist_ok=True)
        # On the disk of `out`, so that renaming is enough: a failure leaves the old report whole.
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as scratch:
            complete = Path(scratch) / "made"
            missing = _write(book, complete)
            if out.exists():
                out.rename(Path(scratch) / "old")
            complete.rename(out)
            return missing


def _write(book: Book, out: Path) -> int:
    for folder in ("assets", "data/text", "data/trace"):
        (out / folder).mkdir(parents=True)
    (out / MARK).touch()
    # Traces come first, and are dropped once written: they are large, and the contents of the page
    # have to say which series have any.
    traced = set()
    count = 0
    for name, content in traces(book):
        _data(out, name, content, packed=True)
        traced |= {series for item in content["of"].values() for series in item}
        count += sum(map(len, content["of"].values()))
    for name, text in texts(book):
        _data(out, name, text, packed=True)
    frame = numbers_of_runs(book)
    _data(out, "rows", rows(book))
    _data(out, "figures", figures(book, frame))
    _data(out, "speeds", speeds(book))
    _data(out, "book", _contents(book, traced))
    for name in (*SCRIPTS, *STYLES):
        shutil.copyfile(HERE / "assets" / name, out / "assets" / name)
    (out / "assets" / "plotly.min.js").write_text(get_plotlyjs(), encoding="utf-8")
    template = environment(HERE / "templates", autoescape=True).get_template("index.html.jinja")
    page = template.render(
        title=" and ".join(book.names),
        table=main_table(book, frame),
        link=link,
        runs=[
            {"name": name, "card": card_of(run, measure(run)), "record": _record(run)}
            for run, name in zip(book.runs, book.names, strict=True)
        ],
        scripts=SCRIPTS,
        styles=STYLES,
    )
    # Half a surrogate pair in a model's text has no UTF-8, but can be a character reference.
    (out / "index.html").write_text(page, encoding="utf-8", errors="xmlcharrefreplace")
    return sum(len(run.items) for run in book.runs if run.config.traced) - count


def _data(out: Path, name: str, value: object, packed: bool = False) -> None:
    (out / "data" / f"{name}.js").write_text(script(name, value, packed), encoding="ascii")


def _contents(book: Book, traced: set[int]) -> dict[str, object]:
    """What the page needs before it loads any other data."""
    return {
        "runs": list(book.names),
        "series": [
            asdict(series) | {"traced": number in traced}
            for number, series in enumerate(book.series)
        ],
        "suites": [suite.title for suite in book.suites],
        "itemsAFile": book.items_a_file,
        "palette": list(PALETTE),
        "kinds": list(KINDS),
        "likely": PROB_PARTS,
    }


def _record(run: Run) -> dict[str, str]:
    """What run.json has, as JSON by the names of its fields, without empty ones."""
    fields = msgspec.to_builtins(run.meta)
    return {
        name: json.dumps(value, indent=2, ensure_ascii=False)
        for name, value in fields.items()
        if value
    }
