"""Draw the figures of a run from its records, as PDF and PNG.

    python tables/figures.py results/runs/NAME
    python tables/figures.py results/runs/NAME --out FOLDER --curves base=training/base/loss.csv fef=...
    python tables/figures.py --out FOLDER --curves base=training/base/loss.csv

Writes `tradeoff` (accuracy against wall-clock speedup, mean over the suites, 95% intervals), `acceptance` (by position
in the window, beside independent acceptance), `window-size` (committed length and speedup against the window size, if
the run has two sizes or more), the figures of tables/charts/series.py (`front`, `front-<suite>`, `speed-by-window`,
`anchor`) if the run has their methods, and `curves` (losses of training). A figure whose records are missing is skipped
with a line that says why. The same records give the same bytes. All are one column wide and readable in grey.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from harness.errors import UserError, one_line_errors
from harness.measures.speed import read_measured
from harness.measures.table import suite_titles
from tables.charts.drawing import (
    STYLE,
    UNDATED,
    Skipped,
)
from tables.charts.figures import draw_acceptance, draw_curves, draw_tradeoff, draw_window_size
from tables.charts.series import draw_anchor, draw_front, draw_speed_by_window


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write `stem`.pdf and `stem`.png, without dates. Raises UserError if that cannot be done."""
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in UNDATED]
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        for path, metadata in zip(paths, UNDATED.values(), strict=True):
            figure.savefig(path, dpi=300, metadata=metadata)
    except OSError as error:
        raise UserError(
            f"cannot write figures to {stem.parent}: {error.strerror}; choose another folder with --out"
        ) from error
    return paths


def main(argv: list[str] | None = None) -> int:
    """The command line; 0 when the figures that the records suffice for are written."""
    parser = argparse.ArgumentParser(description="Draw the figures of a run from its records.")
    parser.add_argument("run", type=Path, nargs="?", metavar="RUN_FOLDER", help="folder with run.json and items.jsonl")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where the files go (default: RUN_FOLDER/figures)")
    parser.add_argument("--curves", nargs="+", default=[], metavar="NAME=FILE", help="loss.csv files of training runs")
    options = parser.parse_args(argv)
    if options.run is None and not (options.curves and options.out):
        raise UserError("name a run's folder, or both --curves and --out")
    drawings: dict[str, Callable[[], tuple[Figure, list[str]]]] = {}
    if options.run is not None:
        run = read_measured(options.run)
        if run.items.empty:
            raise UserError(f"{options.run} holds no items yet; there is nothing to draw")
        ran = set(run.items["suite"].unique())
        drawings |= {
            "tradeoff": lambda: draw_tradeoff(run),
            "acceptance": lambda: draw_acceptance(run),
            "window-size": lambda: draw_window_size(run),
            "speed-by-window": lambda: draw_speed_by_window(run),
            "anchor": lambda: draw_anchor(run),
            "front": lambda: draw_front(run),
        }
        drawings |= {f"front-{suite}": partial(draw_front, run, suite) for suite in suite_titles(run) if suite in ran}
    if options.curves:
        curves = _named_files(options.curves)
        drawings["curves"] = lambda: draw_curves(curves)
    out = options.out or options.run / "figures"
    style: Any = {**matplotlib.rcParamsDefault, "backend": "agg", **STYLE}  # whatever the machine's matplotlibrc says
    with matplotlib.rc_context(style):
        for name, draw in drawings.items():
            try:
                figure, left_out = draw()
            except Skipped as why:
                print(f"{name}: skipped, {why}")
                continue
            print("\n".join([f"{name}: {', '.join(map(str, save(figure, out / name)))}", *left_out]))
    return 0


def _named_files(curves: Sequence[str]) -> dict[str, Path]:
    named = [curve.partition("=") for curve in curves]
    wrong = [curve for curve, (name, _, file) in zip(curves, named, strict=True) if not name or not file]
    if wrong or len({name for name, _, _ in named}) < len(named):
        raise UserError(f"--curves takes NAME=FILE, each name once, not {' '.join(wrong or curves)}")
    return {name: Path(file) for name, _, file in named}


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
