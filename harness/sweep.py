"""How far a comparison depends on the protocol: the same methods, with one option of the run changed at a time.

    python harness/sweep.py --methods "llada,threshold,fef-two-stream" --limit 50 --out FOLDER \\
        --vary "gen_length=64|96" --vary "dtype=bfloat16" --vary "prompt=plain" --vary "methods=llada/2,threshold"
    python harness/sweep.py --data FOLDER --model GSAI-ML/LLaDA-8B-Instruct --suite gsm8k --out FOLDER \\
        --vary "suite=opencompass:gsm8k_0shot_gen_a58960"     another configuration of the same problems

All other options are those of harness/run.py. The base and each value are an untimed run, in FOLDER/base and
FOLDER/OPTION=VALUE; the same command goes on where it was stopped. sweep.md and sweep.csv say for each value Kendall's
tau between the methods' order there and in the base, how many pairs change places and for how many of them both runs
show it, and by how much it moves a method's accuracy at most. Seeds need a temperature.
"""

import logging
import math
import sys
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from harness.elements import elements_of, parse_value
from harness.errors import UserError, one_line_errors
from harness.options import checked, option, parsed
from harness.runs.options import RunOptions

HEADINGS = [
    *("Option", "Value", "Methods", "Kendall's tau", "Pairs shown in the base", "Swapped", "Shown in both"),
    *("Largest change", "of", "95%"),
]
KEPT = ("out", "resume", "overwrite", "plan", "status", "list", "vary")  # what no value changes


@dataclass(frozen=True, kw_only=True)
class SweepOptions(RunOptions):
    """A run's options, and which of them are varied."""

    vary: tuple[str, ...] = option(
        "an option of harness/run.py and other values of it", (), action="append", metavar="OPTION=VALUE|VALUE"
    )


def levels_of(vary: tuple[str, ...]) -> dict[tuple[str, str], Any]:
    """The levels of --vary, (option, value as text) -> value. Raises UserError for what is no option or no value."""
    known = [each.name for each in fields(RunOptions) if each.name not in KEPT]
    levels: dict[tuple[str, str], Any] = {}
    for text in vary:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not elements_of(values, "|") or name not in known:
            wrong = "" if name in known else f"unknown option {name}; valid: {', '.join(known)}; "
            raise UserError(f"--vary {text}: {wrong}write OPTION=VALUE|VALUE")
        levels |= {(name, value): parse_value(value) for value in elements_of(values, "|")}
    return levels


def sweep(options: SweepOptions) -> str:
    """Do the runs that are not there, and write the table; returns it. Raises UserError as a run does, before any."""
    from harness.measures.sweeping import by_factor, swept
    from harness.records.store import read_run, write_atomically
    from harness.run import run
    from harness.runs.resolve import resolve

    levels = levels_of(options.vary)
    if options.out is None or not levels:
        raise UserError("--out FOLDER and --vary are needed: what is to be changed, such as --vary 'gen_length=64|96'")
    same = {each.name: getattr(options, each.name) for each in fields(RunOptions) if each.name not in KEPT}
    runs: dict[tuple[str, str], tuple[Path, RunOptions]] = {}
    for key, value in {("base", ""): None, **levels}.items():
        folder = options.out / (key[0] if value is None else f"{key[0]}={key[1].replace('/', '_')}")
        own = same | ({} if value is None else {key[0]: value}) | {"untimed": True, "out": folder}
        runs[key] = folder, checked(RunOptions, own | {"resume": (folder / "run.json").exists()})
        resolve(runs[key][1])  # what cannot be decoded is refused before hours of the other values
    found = {}
    for key, (folder, each_run) in runs.items():
        with tempfile.TemporaryDirectory(prefix="harness-") as scratch:
            run(each_run, Path(scratch), tables=False)
        found[key] = read_run(folder)
    base = found.pop(("base", ""))
    rows = by_factor(swept(base, found))
    write_atomically(options.out / "sweep.csv", rows.to_csv(index=False, lineterminator="\n"))
    write_atomically(options.out / "sweep.md", described(rows))
    return described(rows)


def described(rows: Any) -> str:
    """The rows of `swept` as a page."""
    lines = [f"| {' | '.join(HEADINGS)} |", "|---|---|---:|---:|---:|---:|---:|---:|---|---|"]
    for row in rows.to_dict("records"):
        counts = [row[name] for name in ("pairs", "swapped", "swapped_shown")]
        cells = [row["factor"], row["level"], row["methods"], f"{row['kendall']:.2f}", *counts]
        if math.isnan(row["change"]):
            cells += ["no problem in both", "", ""]
        else:
            cells += [f"{row['change']:+.1f}", row["change_of"]]
            cells += [f"{row['change_low']:+.1f} to {row['change_high']:+.1f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def main(line: list[str] | None = None) -> int:
    """The command line."""
    print(sweep(parsed(SweepOptions, line, __doc__)))
    return 0


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    sys.exit(one_line_errors(main))
