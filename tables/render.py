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
with `--paper` `paper` (the paper's numbers and the measured ones); with `--measures` `measures`,
`tokens` and, of decoders at several settings, `curves` (docs/measuring.md); with `--against METHOD`
`against` (every other method compared with it). `--intervals` adds intervals and p-values to the
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
from harness.measures.captions import empty, timing
from harness.measures.intervals import paired
from harness.measures.seconds import read_measured
from harness.measures.table import measure
from harness.options import option, parsed
from harness.records.store import Run, write_atomically
from tables.output import latex, markdown, write_pdf
from tables.sheets import MEAN_TITLE, Cell, Sheet, Table, TableRequest, of_group
from tables.sheets.against import against_sheets, paper
from tables.sheets.measures import measures, windows
from tables.sheets.measures import theory_sheets as theory
from tables.sheets.suites import ablations

# What makes each table of a run; it yields nothing where records are missing. A new table is one
# file and one entry.
Maker = Callable[[TableRequest], Iterable[Sheet]]
SHEETS: tuple[Maker, ...] = (ablations, windows, theory, measures, against_sheets, paper)
ONLY_FILES = ("windows", "theory", "tokens", "curves")  # tables that are not printed
WIDEST = 10_000  # columns of a terminal
STYLES = {"bold": "bold", "underline": "underline"}  # of a terminal, by a cell's emphasis


def render(run: Run, **tables: Any) -> dict[str, str]:
    """File name -> content of every table of a run; arguments and errors as of `sheets_of`."""
    return as_files(sheets_of(run, **tables))


def sheets_of(
    run: Run,
    paper: bool = False,
    intervals: bool = False,
    against: str = "",
    measures: bool = False,
    published: bool = False,
) -> list[Sheet]:
    """Every table of a run with its numbers.

    Args:
        run: as read.
        paper: the paper's numbers too, where it has any of the run's methods and suites.
        intervals: sub-rows of intervals and p-values.
        against: the method to compare all others with.
        measures: those of the field too.
        published: published accuracies beside the measured ones.

    Raises:
        UserError: the run has no items, is damaged or has no such method.
    """
    pairs = paired(run) if intervals else None
    request = TableRequest(run, measure(run), pairs, paper, against, measures, published)
    return [sheet for make in SHEETS for sheet in make(request)]


def as_files(sheets: Sequence[Sheet]) -> dict[str, str]:
    """File name -> content of sheets, as of `render`."""
    files = {}
    for sheet in sheets:
        table = sheet.table
        files[f"{table.name}.md"] = markdown(table)
        files[f"{table.name}.csv"] = sheet.numbers.to_csv(index=False, lineterminator="\n")
        files[f"{table.name}.tex"] = latex(table)
    return files


def write(files: dict[str, str], folder: Path) -> None:
    """Write the files into a folder; tables of other names stay. Raises UserError where that
    fails."""
    with explained(
        f"cannot write tables to {folder}", OSError, instead="choose another folder with --out"
    ):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_atomically(folder / name, text)


@dataclass(frozen=True, kw_only=True)
class RenderOptions:
    """What is rendered, and where it goes."""

    runs: tuple[Path, ...] = option("folders of runs", (), nargs="+", metavar="RUN_FOLDER")
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
        wanted = (
            options.paper,
            options.intervals,
            options.against,
            options.measures,
            options.published,
        )
        run = read_measured(folder)
        sheets = sheets_of(run, *wanted)
        files = as_files(sheets)
        write(files, out)
        if len(options.runs) == 1:
            shown = [sheet for sheet in sheets if sheet.table.name not in ONLY_FILES]
            show(shown, out, [*empty(run), *timing(run)])
        print(f"written to {out}: {', '.join(files)}")
        if options.paper and "paper.md" not in files:
            print(
                "no paper.md: the paper's tables have none of this run's methods (by label) on its"
                " suites"
            )
        if options.pdf and shutil.which("pdflatex"):
            pages = [text for name, text in files.items() if name.endswith(".tex")]
            print(f"compiled: {write_pdf(pages, out)}")
        elif options.pdf:
            print("no tables.pdf: pdflatex is missing; apt-get install texlive-latex-extra")
    return 0


def show(sheets: Sequence[Sheet], folder: Path, doubts: Sequence[str]) -> None:
    """Print tables: whole where the terminal is wide enough, else their means, or their last group
    of columns.

    Args:
        sheets: of the tables.
        folder: where the files of the whole tables lie.
        doubts: sentences that the numbers must not be read without.
    """
    console = Console(highlight=False)
    for table in (sheet.table for sheet in sheets):
        part = table
        whole = _grid(part)
        if (
            console.measure(whole, options=console.options.update(width=WIDEST)).maximum
            > console.width
        ):
            groups = [group for group in table.cells.columns.get_level_values(0) if group]
            part = of_group(table, MEAN_TITLE if MEAN_TITLE in groups else groups[-1])
            whole = _grid(part)
        console.print(whole)
        for mark, text in part.notes:
            console.print(Text(f"[{mark}] {text}"))
        console.print(Text(f"in full: {folder / table.name}.md"), soft_wrap=True)
    if doubts:
        console.print(Text(" ".join(doubts)))


def _grid(table: Table) -> Grid:
    """A table for the terminal."""
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
    grid.add_column("\nMethod", overflow="fold")
    columns: list[Any] = table.cells.columns.to_flat_index().to_list()
    for group, heading in columns:
        grid.add_column(
            f"{group}\n{heading}", justify="right" if group else "left", overflow="fold"
        )
    for label, row in zip(table.cells.index, table.cells.to_numpy().tolist(), strict=True):
        cells = [Text(cell.text, STYLES.get(cell.emphasis, "")) + _mark(cell) for cell in row]
        grid.add_row(Text(str(label)), *cells)
    return grid


def _mark(cell: Cell) -> str:
    return f" [{cell.mark}]" if cell.mark else ""


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
