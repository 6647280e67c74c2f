"""Draw the figures of a run from its records, as PDF and PNG.

    python tables/figures.py results/runs/NAME
    python tables/figures.py results/runs/NAME --against-option tau
    python tables/figures.py --out FOLDER --pass-at-k RUN RUN

Writes `front` (accuracy against time), of decoders at several settings `parallelism` (accuracy
against tokens a forward pass), both for each suite as well, and `anchor` (accuracy and speedup).
With --pass-at-k RUN RUN ... `pass-at-k`: what several samples solve, a panel for each run. With
--against-option NAME also `option-NAME`: accuracy and speedup against an option that decoders have
several values of. A figure without its records is skipped with a line that says why. The same
records give the same bytes.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.style
from matplotlib.figure import Figure

from harness.errors import UserError, explained, one_line_errors
from harness.measures.seconds import read_measured
from harness.measures.table import suite_titles
from harness.options import option, parsed
from harness.records.store import Run
from tables import charts

STYLE = Path(__file__).with_name("paper.mplstyle")
# Without dates, so that the same records give the same bytes
METADATA: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    "png": {"Software": None},
}


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write `stem`.pdf and `stem`.png, without dates.

    Returns:
        The paths of both.

    Raises:
        UserError: they cannot be written.
    """
    paths = []
    with explained(
        f"cannot write figures to {stem.parent}",
        OSError,
        instead="choose another folder with --out",
    ):
        stem.parent.mkdir(parents=True, exist_ok=True)
        for kind, metadata in METADATA.items():
            paths.append(stem.with_name(f"{stem.name}.{kind}"))
            figure.savefig(paths[-1], dpi=300, metadata=metadata)
    return paths


@dataclass(frozen=True, kw_only=True)
class FigureOptions:
    """What is drawn, and where the figures go."""

    run: Path | None = option(
        "folder with run.json and items.jsonl", positional=True, nargs="?", metavar="RUN_FOLDER"
    )
    out: Path | None = option("where the files go (default: RUN_FOLDER/figures)", metavar="FOLDER")
    series: tuple[str, ...] = option(
        "methods that are one line of the front",
        (),
        positional=False,
        nargs="+",
        metavar="TITLE=PATTERN",
    )
    pass_at_k: tuple[Path, ...] = option(
        "runs of several samples, a temperature each",
        (),
        positional=False,
        nargs="+",
        metavar="RUN",
    )
    against_option: str = option("also a figure against this option", "", metavar="OPTION")


Drawing = Callable[[], charts.Drawn]


def drawings_of(run: Run, series: Mapping[str, str], option: str) -> dict[str, Drawing]:
    """The function that draws each figure of a run, by the figure's name.

    Args:
        run: as read.
        series: patterns of methods by the title of a series, for `parallelism.series_of`.
        option: an option with several values among the run's decoders, or "".

    Raises:
        UserError: the run has no items.
    """
    if run.items.empty:
        raise UserError(f"{run.folder} holds no items yet; there is nothing to draw")
    drawings: dict[str, Drawing] = {
        "anchor": partial(charts.draw_option, run, "anchor", charts.WHOLE, charts.ANCHOR),
        "parallelism": partial(charts.draw_parallelism, run, None, series),
        "front": partial(charts.draw_front, run, None, series),
    }
    if option:
        drawings[f"option-{option}"] = partial(charts.draw_option, run, option)
    # A run that is not finished has suites without items.
    ran = set(run.items["suite"].unique())
    for suite in (suite for suite in suite_titles(run) if suite in ran):
        drawings[f"front-{suite}"] = partial(charts.draw_front, run, suite, series)
        drawings[f"parallelism-{suite}"] = partial(charts.draw_parallelism, run, suite, series)
    return drawings


def main(line: list[str] | None = None) -> int:
    """The command line; 0 when the figures that the records suffice for are written."""
    options = parsed(FigureOptions, line, "Draw the figures of a run from its records.")
    if not (options.run or (options.out and options.pass_at_k)):
        raise UserError("name a run's folder, or --out with --pass-at-k")
    series = _patterns(options.series)
    drawings: dict[str, Drawing] = {}
    if options.run is not None:
        drawings = drawings_of(read_measured(options.run), series, options.against_option)
    if options.pass_at_k:
        runs = [read_measured(folder) for folder in options.pass_at_k]
        drawings["pass-at-k"] = partial(charts.draw_pass_at_k, runs)
    out = options.out or Path(options.run or "") / "figures"
    with matplotlib.style.context(["default", STYLE]):
        for name, draw in drawings.items():
            try:
                figure, left_out = draw()
            except charts.Skipped as reason:
                # Most runs lack the records of some figure, which is no fault.
                print(f"{name}: skipped, {reason}")
                continue
            paths = save(figure, out / name)
            print("\n".join([f"{name}: {', '.join(map(str, paths))}", *left_out]))
    return 0


def _patterns(texts: Sequence[str]) -> dict[str, str]:
    """Patterns by title. Raises UserError for a text that is no TITLE=PATTERN."""
    patterns = {}
    for text in texts:
        title, _, pattern = text.partition("=")
        if not title or not pattern or title in patterns:
            raise UserError(f"--series takes TITLE=PATTERN, each title once, not {text}")
        patterns[title] = pattern
    return patterns


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
