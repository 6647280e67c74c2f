"""Render the tables of one run or of several from their records.

    python tables/render.py results/runs/NAME
    python tables/render.py results/runs/NAME --paper --pdf --out FOLDER
    python tables/render.py results/runs/NAME --intervals --measures
    python tables/render.py results/runs/NAME --published
    python tables/render.py results/runs/NAME --against llada
    python tables/render.py results/reference/main results/reference/ablations --paper --pdf

Each table is a .tex, a .md and a .csv, the CSV with unformatted numbers: `main`, `training`,
`speculation`, `draft` and `window-size` (accuracy and speedups by suite), those that the run has
rows for; `windows` (speculative windows) and `theory` (what the paper's theorem expects of them);
with `--paper` `paper` (the paper's numbers and the measured ones); with `--measures`, or of several
samples, `responses` (how they end, pass@k); with `--measures` also `measures`, `tokens` and, of
decoders at several settings, `curves` (docs/measuring.md); with `--against METHOD` `against` (every
other method compared with it). `--intervals` adds intervals and p-values to the
first five, `--pdf` tables.pdf, by pdflatex with booktabs, multirow and graphicx. The same records
give the same bytes. The tables of a single run are printed as well, as wide as the terminal is.

A run made with --untimed has no Speed and nothing per second; one with a timed run of the same
methods in its folder `speed` has that run's (harness/measures/seconds.py).
"""

import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from harness.errors import UserError, explained, one_line_errors
from harness.measures.intervals import paired
from harness.measures.seconds import read_measured
from harness.measures.table import measure
from harness.options import option, parsed
from harness.records.store import Run, write_atomically
from tables.output import csv, latex, markdown, write_pdf
from tables.sheets import MEAN_TITLE, TableRequest
from tables.sheets.against import against_tables, paper_tables
from tables.sheets.measures import measures, responses, theory_tables, windows
from tables.sheets.suites import ablations
from tables.table import Cell, Table

# What makes each table of a run; it yields nothing where records are missing. A new table is one
# file and one entry.
Maker = Callable[[TableRequest], Iterable[Table]]
MAKERS: tuple[Maker, ...] = (
    ablations,
    windows,
    theory_tables,
    responses,
    measures,
    against_tables,
    paper_tables,
)
WRITERS = {"md": markdown, "csv": csv, "tex": latex}
ONLY_FILES = ("windows", "theory", "tokens", "curves")  # tables that are not printed
WANTED = ("intervals", "paper", "against", "measures", "published")  # options of what is made
WIDEST = 10_000  # columns of a terminal


def tables_of(run: Run, intervals: bool = False, **wanted: Any) -> list[Table]:
    """Every table of a run.

    Args:
        run: as read.
        intervals: intervals and p-values below the numbers.
        wanted: which further tables; the fields paper, against, measures and published of
            `TableRequest`.

    Raises:
        UserError: the run has no items, is damaged or has no such method.
    """
    pairs = paired(run) if intervals else None
    request = TableRequest(run, measure(run), pairs, **wanted)
    return [table for make in MAKERS for table in make(request)]


def as_files(tables: Sequence[Table]) -> dict[str, str]:
    """File name -> content of tables."""
    return {
        f"{table.name}.{kind}": write(table) for table in tables for kind, write in WRITERS.items()
    }


def write(files: dict[str, str], folder: Path) -> None:
    """Write the files into a folder, where tables of other names stay.

    Args:
        files: contents by file name.
        folder: made if it does not exist.

    Raises:
        UserError: the folder cannot be written to.
    """
    with explained(
        f"cannot write tables to {folder}", OSError, instead="choose another folder with --out"
    ):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_atomically(folder / name, text)


@dataclass(frozen=True, kw_only=True)
class RenderOptions:
    """What is rendered, and where it goes."""

    runs: tuple[Path, ...] = option(
        "folders of runs", (), positional=True, nargs="+", metavar="RUN_FOLDER"
    )
    out: Path | None = option("where the files go (default: RUN_FOLDER/tables)", metavar="FOLDER")
    paper: bool = option("also the paper's numbers beside the measured ones", False)
    intervals: bool = option("95%% intervals and p-values under each row", False)
    measures: bool = option("also tokens per forward, per second, and AUP", False)
    published: bool = option(
        "a column of the accuracies that methods were published with, where any is known", False
    )
    against: str = option("also every method beside this one, with intervals", "", metavar="METHOD")
    pdf: bool = option("also tables.pdf, all LaTeX tables, with pdflatex", False)


def main(line: list[str] | None = None) -> int:
    """The command line; 0 when the tables are written."""
    options = parsed(
        RenderOptions, line, "Render the tables of one run or of several from their records."
    )
    if options.out and len(options.runs) > 1:
        raise UserError(
            f"--out is for one run, {len(options.runs)} were given; leave it out, each run has a"
            " folder tables"
        )
    for folder in options.runs:
        out = options.out or folder / "tables"
        run = read_measured(folder)
        tables = tables_of(run, **{name: getattr(options, name) for name in WANTED})
        files = as_files(tables)
        write(files, out)
        if len(options.runs) == 1:
            show([table for table in tables if table.name not in ONLY_FILES], out)
        print(f"written to {out}: {', '.join(files)}")
        if options.paper and "paper.md" not in files:
            print(
                "no paper.md: the paper's tables have none of this run's methods (by label) on its"
                " suites"
            )
        if options.pdf:
            print(_compiled(files, out))
    return 0


def _compiled(files: dict[str, str], folder: Path) -> str:
    """Compile tables.pdf if pdflatex is installed; returns the line to print about it."""
    if not shutil.which("pdflatex"):
        return "no tables.pdf: pdflatex is missing; apt-get install texlive-latex-extra"
    pages = [text for name, text in files.items() if name.endswith(".tex")]
    return f"compiled: {write_pdf(pages, folder)}"


def show(tables: Sequence[Table], folder: Path) -> None:
    """Print tables: whole where the terminal is wide enough, else their means, or their last group
    of columns; then the run card.

    Args:
        tables: of one run.
        folder: where the files of the whole tables lie.
    """
    console = Console(highlight=False)
    # rich measures no table as wider than its console: only an endless one shows the true width.
    widest = console.options.update(width=WIDEST)
    for table in tables:
        part = table
        groups = [group for group, _ in table.groups if group]
        if groups and console.measure(_grid(table), options=widest).maximum > console.width:
            part = table.of_group(MEAN_TITLE if MEAN_TITLE in groups else groups[-1])
        console.print(_grid(part))
        # As Text: rich would read "[i]" in a plain string as markup for italics.
        for letter, meaning in part.marks.items():
            console.print(Text(f"[{letter}] {meaning}"))
        console.print(Text(f"in full: {folder / table.name}.md"), soft_wrap=True)
    for key, value in tables[0].card.items():
        console.print(Text(f"{key}: {value}"))


def _grid(table: Table) -> Grid:
    """A table for the terminal."""
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
    grid.add_column(f"\n{table.heading}", overflow="fold")
    for column in table.columns:
        # Columns without a group hold texts, such as the names of checkpoints.
        justify: Any = "right" if column.group else "left"
        grid.add_column(f"{column.group}\n{column.heading}", justify=justify, overflow="fold")
    for label, cells, _ in table.lines():
        grid.add_row(Text(label), *map(_text, cells))
    return grid


def _text(cell: Cell) -> Text:
    return Text(cell.text, cell.emphasis) + (f" [{cell.marks}]" if cell.marks else "")


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
