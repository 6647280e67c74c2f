"""Render the tables of a run from its records.

    python tables/render.py results/runs/NAME
    python tables/render.py results/runs/NAME --paper --pdf --out FOLDER

Writes `main.tex`, `main.md` and `main.csv` (accuracy and speedups per method and suite), `training`, `speculation`,
`draft` and `window-size` likewise if the run has the methods of that ablation, and `windows.md` and `windows.csv`
(speculative windows); `theory.md` and `theory.csv` (what the paper's theorem expects of them) if FeF methods have
windows; with `--paper` also `paper.tex`, `paper.md` and `paper.csv`, the paper's numbers beside the measured ones; with
`--pdf` also `tables.pdf`, all LaTeX tables, if pdflatex is installed. The CSV files are tidy, unformatted numbers, of
all methods. The LaTeX needs booktabs, multirow and graphicx. Only methods with records have rows, and the same records
give the same bytes. Reads records and nothing else.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd

from harness.errors import UserError, one_line_errors
from harness.records import Run, read_run, write_atomically
from tables.ablations import tables_of
from tables.layout import windows_table
from tables.measures import measure, measure_windows
from tables.paper import TIDY, beside_paper, paper_table
from tables.pdf import has_pdflatex, write_pdf
from tables.theory import theory, theory_table
from tables.writers import latex, markdown


def render(run: Run, paper: bool = False) -> dict[str, str]:
    """File name -> content of every table of a run; with `paper`, the paper's numbers beside the measured ones too.

    Raises UserError if the run has no items, is damaged, or has no method of the paper.
    """
    measured, windows = measure(run), measure_windows(run)
    files: dict[str, str] = {}
    for table in tables_of(measured, run):
        files |= {f"{table.name}.md": markdown(table), f"{table.name}.tex": latex(table)}
    files |= {
        "main.csv": _csv(measured),
        "windows.md": markdown(windows_table(windows, measured, run)),
        "windows.csv": _csv(windows),
    }
    expected = theory(run)
    if len(expected):
        table = theory_table(expected, measured, run)
        files |= {"theory.md": markdown(table), "theory.csv": _csv(expected)}
    if paper:
        beside = beside_paper(measured, run)
        table = paper_table(beside, measured, run)
        files |= {"paper.md": markdown(table), "paper.tex": latex(table), "paper.csv": _csv(beside[TIDY])}
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
    parser = argparse.ArgumentParser(description="Render the tables of a run from its records.")
    parser.add_argument("run", type=Path, metavar="RUN_FOLDER", help="folder with run.json and items.jsonl")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where the files go (default: RUN_FOLDER/tables)")
    parser.add_argument("--paper", action="store_true", help="also the paper's numbers beside the measured ones")
    parser.add_argument("--pdf", action="store_true", help="also tables.pdf, all LaTeX tables, with pdflatex")
    options = parser.parse_args(argv)
    files = render(read_run(options.run), options.paper)
    out = options.out or options.run / "tables"
    write(files, out)
    for name, text in files.items():
        if name.endswith(".md"):
            print(text)
    print(f"written to {out}: {', '.join(files)}")
    if options.pdf and has_pdflatex():
        print(f"compiled: {write_pdf([text for name, text in files.items() if name.endswith('.tex')], out)}")
    elif options.pdf:
        print("no tables.pdf: pdflatex is not installed; install TeX Live, or compile the .tex files elsewhere")
    return 0


def _csv(frame: pd.DataFrame) -> str:
    text: str = frame.to_csv(index=False, lineterminator="\n")
    return text


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
