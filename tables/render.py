"""Render the tables of one run or of several from their records.

    python tables/render.py results/runs/NAME
    python tables/render.py results/runs/NAME --paper --pdf --out FOLDER
    python tables/render.py results/reference/nano results/reference/ablations --paper --pdf

Writes `main`, `training`, `speculation`, `draft` and `window-size` (accuracy and speedups per method and suite), each
as .tex, .md and .csv, those that the run has rows for; `windows.md` and `windows.csv` (speculative windows);
`theory.md` and `theory.csv` (what the paper's theorem expects of them) if FeF methods have windows; with `--paper` also
`paper.tex`, `paper.md` and `paper.csv`, the numbers of all five tables of the paper beside the measured ones; with
`--pdf` also `tables.pdf`, all LaTeX tables, if pdflatex is installed. The CSV files are tidy, unformatted numbers, of
the rows of their table. The LaTeX needs booktabs, multirow and graphicx. Only methods with records have rows, and the
same records give the same bytes. Reads records and nothing else. The tables of a single run are printed as well.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd

from harness.errors import UserError, one_line_errors
from harness.records import Run, read_run, write_atomically
from tables.ablations import tables_of
from tables.layout import Table, windows_table
from tables.measures import measure, measure_windows
from tables.paper import TIDY, beside_paper, paper_table
from tables.pdf import has_pdflatex, write_pdf
from tables.theory import theory, theory_table
from tables.writers import latex, markdown


def render(run: Run, paper: bool = False) -> dict[str, str]:
    """File name -> content of every table of a run; with `paper`, the paper's numbers beside the measured ones too.

    Without paper.* if the paper has no number for any of the run's methods on its suites. Raises UserError if the run
    has no items or is damaged.
    """
    measured, windows = measure(run), measure_windows(run)
    files: dict[str, str] = {}
    for table, rows in tables_of(measured, run):
        files |= _formats(table, rows) | {f"{table.name}.tex": latex(table)}
    files |= _formats(windows_table(windows, measured, run), windows)
    expected = theory(run)
    if len(expected):
        files |= _formats(theory_table(expected, measured, run), expected)
    if paper and len(beside := beside_paper(measured, run)):
        table = paper_table(beside, measured, run)
        files |= _formats(table, beside[TIDY]) | {f"{table.name}.tex": latex(table)}
    return files


def write(files: dict[str, str], folder: Path) -> None:
    """Write the files into a folder, made if need be. Raises UserError if that cannot be done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_atomically(folder / name, text)
    except OSError as error:
        raise UserError(
            f"cannot write tables to {folder}: {error.strerror}; choose another folder with --out"
        ) from error


def main(argv: list[str] | None = None) -> int:
    """The command line; 0 when the tables are written."""
    parser = argparse.ArgumentParser(description="Render the tables of one run or of several from their records.")
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN_FOLDER", help="folder with run.json and items.jsonl")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where the files go (default: RUN_FOLDER/tables)")
    parser.add_argument("--paper", action="store_true", help="also the paper's numbers beside the measured ones")
    parser.add_argument("--pdf", action="store_true", help="also tables.pdf, all LaTeX tables, with pdflatex")
    options = parser.parse_args(argv)
    if options.out and len(options.runs) > 1:
        raise UserError(
            f"--out is for one run, {len(options.runs)} were given; leave it out, each run has a folder tables"
        )
    for folder in options.runs:
        files, out = render(read_run(folder), options.paper), options.out or folder / "tables"
        write(files, out)
        if len(options.runs) == 1:
            print("\n".join(text for name, text in files.items() if name.endswith(".md")))
        print(f"written to {out}: {', '.join(files)}")
        if options.paper and "paper.md" not in files:
            print("no paper.md: the paper's tables have none of this run's methods (by label) on its suites")
        if options.pdf and has_pdflatex():
            print(f"compiled: {write_pdf([text for name, text in files.items() if name.endswith('.tex')], out)}")
        elif options.pdf:
            print("no tables.pdf: pdflatex is not installed; install TeX Live, or compile the .tex files elsewhere")
    return 0


def _formats(table: Table, frame: pd.DataFrame) -> dict[str, str]:
    """Markdown of the table and CSV of its numbers, by file name."""
    return {
        f"{table.name}.md": markdown(table),
        f"{table.name}.csv": frame.to_csv(index=False, lineterminator="\n"),
    }


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
