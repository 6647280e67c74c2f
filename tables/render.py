"""Render the tables of one run or of several from their records.

    python tables/render.py results/runs/NAME
    python tables/render.py results/runs/NAME --paper --pdf --out FOLDER
    python tables/render.py results/runs/NAME --intervals --measures
    python tables/render.py results/runs/NAME --against llada
    python tables/render.py results/reference/main results/reference/ablations --paper --pdf
    python tables/render.py results/runs/A results/runs/B --together --out FOLDER

Writes `main`, `training`, `speculation`, `draft` and `window-size` (accuracy and speedups per method and suite), each
as .tex, .md and .csv, if the run has its rows; `windows` (speculative windows) if there are any, and `theory` (what the
paper's theorem expects of them) if FeF methods have some; with `--paper` also `paper`, the numbers of all five tables
of the paper beside the measured ones; with `--intervals` 95% intervals and p-values of accuracy against LLaDA under
each row of the first five, and in their CSV files; with `--measures` also `measures` (tokens per forward and second, by
every published definition), `tokens` (tokens, calls and percentiles of seconds of a response) and, of decoders at
several settings, `curves` (accuracy under parallelism); with `--against METHOD` also `against` (every other method
beside that one, problem by problem: points of accuracy, speed and responses with the same tokens); with `--pdf` also
`tables.pdf`, all LaTeX tables, if pdflatex is installed. The CSV files are tidy, unformatted numbers, of the rows of
their table and whatever `--columns` says. The LaTeX needs booktabs, multirow and graphicx. Only methods with records
have rows, and the same records give the same bytes. Reads records and nothing else. The tables of a single run are
printed as well.

`--together` makes one set of tables of several runs, if machine, model, problems and settings agree; what differs is
listed, and `--allow NAME,NAME` turns it into a footnote. Every speedup is over the LLaDA of the same run.
A run made with --untimed has no Speed and nothing per second; one with a timed run of the same methods in its folder
`speed` has that run's (harness/measures/speed.py).
"""

import argparse
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from harness.errors import UserError, cannot, one_line_errors
from harness.measures.intervals import paired
from harness.measures.speed import read_measured
from harness.measures.table import measure
from harness.measures.together import by_pair_of_all, of_all, put_together
from harness.records.store import Run, read_run, write_atomically
from tables.output.pdf import NAME as PDF
from tables.output.pdf import write_pdf
from tables.output.writers import latex, markdown
from tables.sheets.ablations import ABLATIONS, ablations
from tables.sheets.against import against_sheets
from tables.sheets.layout import Request, Sheet, with_columns
from tables.sheets.measures import measures
from tables.sheets.paper import paper
from tables.sheets.theory import theory_sheets as theory
from tables.sheets.theory import windows

# What makes each table of a run; it yields nothing where records are missing. A new table is one file and one entry.
SHEETS: tuple[Callable[[Request], Iterable[Sheet]], ...] = (ablations, windows, theory, measures, against_sheets, paper)
# What a rendering may leave in its folder.
NAMES = {"main", *ABLATIONS, "windows", "theory", "measures", "tokens", "curves", "against", "paper"}
FORMATS = (".md", ".csv", ".tex")


def render(
    run: Run,
    paper: bool = False,
    intervals: bool = False,
    against: str = "",
    columns: Sequence[str] = (),
    captions: bool = True,
    measures: bool = False,
) -> dict[str, str]:
    """File name -> content of every table of a run, or of runs that `together.put_together` made one.

    paper: the paper's numbers beside the measured ones too; there is no paper.* if the paper has no number for any of
    the run's methods on its suites. intervals: sub-rows of intervals and p-values. against: a method of the run, for
    every other beside it. columns: groups and headings that stay (`layout.with_columns`); all without. captions:
    whether tables have one. measures: those of the field too. Raises UserError if the run has no items, is damaged or
    has no such method or column.
    """
    pairs = by_pair_of_all(paired, run) if intervals else None
    request = Request(run, of_all(measure, run), pairs, paper, against, measures)
    sheets = [sheet for make in SHEETS for sheet in make(request)]
    known = {name for sheet in sheets for column in sheet.table.cells.columns for name in column if name}
    unknown = [name for name in columns if name.lower() not in map(str.lower, known)]
    if unknown:
        raise UserError(f"--columns {', '.join(unknown)}: no table has that; there are {', '.join(sorted(known))}")
    files = {}
    for sheet in sheets:
        table = with_columns(sheet.table, columns)
        table = table if captions else replace(table, caption="")
        files[f"{table.name}.md"] = markdown(table)
        files[f"{table.name}.csv"] = sheet.numbers.to_csv(index=False, lineterminator="\n")
        files[f"{table.name}.tex"] = latex(table)
    return files


def write(files: dict[str, str], folder: Path) -> None:
    """Write the files into a folder, made if need be, and remove those tables of an earlier rendering that are not now.

    Raises UserError if that cannot be done.
    """
    with cannot(f"write tables to {folder}", "choose another folder with --out"):
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            if path.name == PDF or (path.stem in NAMES and path.suffix in FORMATS and path.name not in files):
                path.unlink()
        for name, text in files.items():
            write_atomically(folder / name, text)


def main(argv: list[str] | None = None) -> int:
    """The command line; 0 when the tables are written."""
    parser = argparse.ArgumentParser(description="Render the tables of one run or of several from their records.")
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN_FOLDER", help="folder with run.json and items.jsonl")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where the files go (default: RUN_FOLDER/tables)")
    parser.add_argument("--paper", action="store_true", help="also the paper's numbers beside the measured ones")
    parser.add_argument("--intervals", action="store_true", help="95%% intervals and p-values under each row")
    parser.add_argument("--measures", "--tps", action="store_true", help="also tokens per forward, per second, and AUP")
    parser.add_argument(
        "--against", default="", metavar="METHOD", help="also every method beside this one, with intervals"
    )
    parser.add_argument(
        "--columns", default="", metavar="NAMES", help='suites, "Mean" and headings that stay: "Mean,Acc." (all)'
    )
    parser.add_argument("--no-caption", action="store_true", help="tables without their caption")
    parser.add_argument("--pdf", action="store_true", help="also tables.pdf, all LaTeX tables, with pdflatex")
    parser.add_argument("--together", action="store_true", help="one set of tables of several comparable runs")
    parser.add_argument("--allow", metavar="NAMES", help="with --together: checks that may fail, by name")
    options = parser.parse_args(argv)
    for run, out in _asked(options):
        columns = [name.strip() for name in options.columns.split(",") if name.strip()]
        captions = not options.no_caption
        wanted = (options.paper, options.intervals, options.against, columns, captions, options.measures)
        files = render(run, *wanted)
        write(files, out)
        if options.together or len(options.runs) == 1:
            print(as_printed(text for name, text in files.items() if name.endswith(".md")))
        print(f"written to {out}: {', '.join(files)}")
        if options.paper and "paper.md" not in files:
            print("no paper.md: the paper's tables have none of this run's methods (by label) on its suites")
        if options.pdf and shutil.which("pdflatex"):
            print(f"compiled: {write_pdf([text for name, text in files.items() if name.endswith('.tex')], out)}")
        elif options.pdf:
            print("no tables.pdf: pdflatex is not installed; install TeX Live, or compile the .tex files elsewhere")
    return 0


def as_printed(texts: Iterable[str]) -> str:
    """Markdown tables as a terminal shows them: what an earlier caption says is not said again."""
    said: set[str] = set()
    shown = []
    for text in texts:
        caption, _, table = text.partition("\n\n")
        if not caption.startswith("|"):
            sentences = caption.removesuffix(".").split(". ")
            new = [each for each in sentences if each not in said]
            said.update(sentences)
            text = "\n\n".join([". ".join(new) + "."] * bool(new) + [table])
        shown.append(text)
    return "\n".join(shown)


def _asked(options: argparse.Namespace) -> Iterator[tuple[Run, Path]]:
    """The runs to render, each with the folder of its tables. Raises UserError for options that do not go together."""
    folders: list[Path] = options.runs
    if options.together:
        if options.out is None:
            raise UserError("--together needs --out, the folder of the common tables")
        allowed = [name.strip() for name in (options.allow or "").split(",") if name.strip()]
        yield put_together([read_run(folder) for folder in folders], allowed), options.out
        return
    if options.allow is not None:
        raise UserError("--allow is for --together: it names what may differ between the runs of one table")
    if options.out and len(folders) > 1:
        raise UserError(
            f"--out is for one run, {len(folders)} were given; leave it out, each run has a folder tables, "
            "or add --together for one set of tables"
        )
    for folder in folders:
        yield read_measured(folder), options.out or folder / "tables"


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
