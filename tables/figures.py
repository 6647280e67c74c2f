"""Draw the figures of a run from its records, as PDF and PNG.

    python tables/figures.py results/runs/NAME python tables/figures.py results/runs/NAME --out
    FOLDER --curves base=training/base/loss.csv fef=... python tables/figures.py results/runs/NAME
    --against-option tau python tables/figures.py --out FOLDER --curves base=training/base/loss.csv

Writes `tradeoff` (accuracy against wall-clock speedup), `acceptance` (by position in the window),
`window-size` (committed length and speedup), of decoders at several settings `anchor`,
`parallelism` (accuracy against tokens a forward pass) and `front` (accuracy against time), these
two for each suite as well, and `curves` (losses of training). With --against-option NAME also
`option-NAME`: accuracy and speedup against an option that decoders have several values of. A figure
without its records is skipped with a line that says why. The same records give the same bytes.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from harness.errors import UserError, explained, one_line_errors
from harness.measures.notes import notes_of
from harness.measures.seconds import read_measured
from harness.measures.table import suite_titles
from harness.options import option, parsed
from tables import charts, fronts


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write `stem`.pdf and `stem`.png, without dates. Raises UserError if that cannot be done."""
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in charts.UNDATED]
    with explained(
        f"cannot write figures to {stem.parent}",
        OSError,
        instead="choose another folder with --out",
    ):
        stem.parent.mkdir(parents=True, exist_ok=True)
        for path, metadata in zip(paths, charts.UNDATED.values(), strict=True):
            figure.savefig(path, dpi=300, metadata=metadata)
    return paths


@dataclass(frozen=True, kw_only=True)
class FigureOptions:
    """What is drawn, and where the figures go."""

    run: Path | None = option(
        "folder with run.json and items.jsonl", nargs="?", metavar="RUN_FOLDER"
    )
    out: Path | None = option("where the files go (default: RUN_FOLDER/figures)", metavar="FOLDER")
    curves: tuple[str, ...] = option(
        "loss.csv files of training runs", (), positional=False, nargs="+", metavar="NAME=FILE"
    )
    series: tuple[str, ...] = option(
        "methods that are one line of the front",
        (),
        positional=False,
        nargs="+",
        metavar="TITLE=PATTERN",
    )
    against_option: str = option("also a figure against this option", "", metavar="OPTION")


def main(line: list[str] | None = None) -> int:
    """The command line; 0 when the figures that the records suffice for are written."""
    options = parsed(FigureOptions, line, "Draw the figures of a run from its records.")
    if options.run is None and not (options.curves and options.out):
        raise UserError("name a run's folder, or --out with --curves")
    series = _pairs("--series takes TITLE=PATTERN", options.series)
    drawings: dict[str, Callable[[], tuple[Figure, list[str]]]] = {}
    if options.run is not None:
        run = read_measured(options.run)
        if run.items.empty:
            raise UserError(f"{options.run} holds no items yet; there is nothing to draw")
        ran = set(run.items["suite"].unique())
        drawings |= {
            "tradeoff": lambda: charts.draw_tradeoff(run, series),
            "acceptance": lambda: charts.draw_acceptance(run, series),
            "window-size": lambda: charts.draw_window_size(run),
            "anchor": lambda: charts.draw_option(run, "anchor", charts.WHOLE, charts.ANCHOR),
            "parallelism": lambda: fronts.draw_parallelism(run, None, series),
            "front": lambda: fronts.draw_front(run, None, series),
        }
        if options.against_option:
            name = f"option-{options.against_option}"
            drawings[name] = partial(charts.draw_option, run, options.against_option)
        for suite in (suite for suite in suite_titles(run) if suite in ran):
            drawings |= {f"front-{suite}": partial(fronts.draw_front, run, suite, series)}
            drawings |= {
                f"parallelism-{suite}": partial(fronts.draw_parallelism, run, suite, series)
            }
    if options.curves:
        curves = {
            name: Path(file)
            for name, file in _pairs("--curves takes NAME=FILE", options.curves).items()
        }
        drawings["curves"] = lambda: charts.draw_curves(curves)
    out = options.out or Path(options.run or "") / "figures"
    # whatever the machine's matplotlibrc says
    style: Any = {
        **matplotlib.rcParamsDefault,
        "backend": "agg",
        **charts.STYLE,
    }
    with matplotlib.rc_context(style):
        for name, draw in drawings.items():
            try:
                figure, left_out = draw()
            except charts.Skipped as why:
                print(f"{name}: skipped, {why}")
                continue
            print(
                "\n".join([f"{name}: {', '.join(map(str, save(figure, out / name)))}", *left_out])
            )
    if options.run is not None:  # a drawing has no room for what tables note
        numbers = product(run.config.methods, run.config.suites, ("accuracy_note",))
        print("".join(f"{note}\n" for note in notes_of(run, numbers)), end="")
    return 0


def _pairs(rule: str, given: Sequence[str]) -> dict[str, str]:
    """What is given as NAME=VALUE, by name. Raises UserError, with the rule, for anything else."""
    named = [each.partition("=") for each in given]
    wrong = [
        each for each, (name, _, value) in zip(given, named, strict=True) if not name or not value
    ]
    if wrong or len({name for name, _, _ in named}) < len(named):
        raise UserError(f"{rule}, each name once, not {' '.join(wrong or given)}")
    return {name: value for name, _, value in named}


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
