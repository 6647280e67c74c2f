"""How far a comparison depends on the protocol: the same methods, with one option of the run changed at a time.

    python harness/sweep.py --methods "llada,threshold,fef-two-stream" --limit 50 --out FOLDER \\
        --vary "gen_length=64|96" --vary "dtype=bfloat16" --vary "prompt=plain" --vary "methods=llada/2,threshold"
    python harness/sweep.py --data FOLDER --model GSAI-ML/LLaDA-8B-Instruct --suite gsm8k --out FOLDER \\
        --vary "suite=opencompass:gsm8k_0shot_gen_a58960"     another configuration of the same problems

All other options are those of harness/run.py. The base and each value are an untimed run, in FOLDER/base and
FOLDER/OPTION=VALUE; the same command goes on where it was stopped. With --cross there is one for each combination of
the values. sweep-table.md and .tex have the accuracies, method by value, sweep-table.csv those of every suite. sweep.md
and sweep.csv say for each value Kendall's tau between the methods' order there and in the base, how many pairs change
places and for how many of them both runs show it, and by how much it moves a method's accuracy at most, over the
problems of both. Seeds need a temperature.
"""

from __future__ import annotations

import logging
import math
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.elements import elements_of, parse_value
from harness.errors import UserError, one_line_errors
from harness.measures.captions import divided, setting
from harness.measures.intervals import means
from harness.measures.notes import joined, with_notes
from harness.measures.sweeps import Level, by_factor, swept
from harness.measures.table import BY_SEED, measure, method_labels, suite_titles
from harness.options import checked, option, parsed
from harness.records.store import Run
from harness.runs.options import RunOptions
from model_wrappers.options import meant

HEADINGS = [
    *("Option", "Value", "Methods", "Kendall's tau", "Pairs shown in the base", "Swapped", "Shown in both"),
    *("Largest change", "of", "95%", "Problems"),
]
KEPT = ("out", "resume", "overwrite", "plan", "status", "list", "vary")  # what no value changes


@dataclass(frozen=True, kw_only=True)
class SweepOptions(RunOptions):
    """A run's options, and which of them are varied."""

    vary: tuple[str, ...] = option(
        "an option of harness/run.py and other values of it",
        (),
        group="what is varied",
        action="append",
        metavar="OPTION=VALUE|VALUE",
    )
    cross: bool = option("all combinations of the values instead of one option at a time", False)


BY = " x "
BASE: Level = ("base", "")


def levels_of(vary: tuple[str, ...], cross: bool = False) -> dict[Level, dict[str, Any]]:
    """The levels of --vary, (option, value as text) -> what changes. cross: every combination of the options' values.

    Raises UserError for what is no option or no value.
    """
    known = [each.name for each in fields(RunOptions) if each.name not in KEPT]
    given: dict[str, list[str]] = {}
    for text in vary:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not elements_of(values, "|") or name not in known:
            wrong = "" if name in known else f"; unknown option {name}{meant(name, known)}"
            raise UserError(f"--vary {text}: write OPTION=VALUE|VALUE{wrong}")
        given.setdefault(name, []).extend(elements_of(values, "|"))
    for name, texts in given.items():
        read = [parse_value(value) for value in texts]
        if twice := [value for place, value in enumerate(read) if value in read[:place]]:
            raise UserError(f"--vary names {name}={twice[0]} twice")
    together = [tuple(given)] if cross and given else [(name,) for name in given]
    return {
        (BY.join(names), BY.join(values)): dict(zip(names, map(parse_value, values), strict=True))
        for names in together
        for values in product(*(given[name] for name in names))
    }


def sweep(options: SweepOptions) -> str:
    """Do the runs that are not there, and write the table; returns it. Raises UserError as a run does, before any."""
    from harness.records.store import read_run, write_atomically
    from harness.records.written import make_room
    from harness.run import run
    from harness.runs.resolve import resolve

    levels = levels_of(options.vary, options.cross)
    if options.out is None or not levels:
        raise UserError("--out FOLDER and --vary are needed: what is to be changed, such as --vary 'gen_length=64|96'")
    same = {each.name: getattr(options, each.name) for each in fields(RunOptions) if each.name not in KEPT}
    runs: dict[Level, tuple[Path, RunOptions]] = {}
    for key, changed in {BASE: {}, **levels}.items():
        named = ",".join(f"{name}={value}" for name, value in zip(*(part.split(BY) for part in key), strict=True))
        folder = options.out / (named.replace("/", "_") if changed else BASE[0])
        own = same | changed | {"untimed": True, "out": folder}
        runs[key] = folder, checked(RunOptions, own | {"resume": (folder / "run.json").exists()})
        resolve(runs[key][1])  # what cannot be decoded is refused before hours of the other values
    make_room(options.out, WRITES, lambda path: path.is_file() and (runs[BASE][0] / "run.json").exists(), kept=True)
    found: dict[Level, Run] = {}
    for key, (folder, each_run) in runs.items():
        with tempfile.TemporaryDirectory(prefix="harness-") as scratch:
            run(each_run, Path(scratch), tables=False)
        found[key] = read_run(folder)
    base = found.pop(BASE)
    numbers = accuracies({BASE: base, **found})
    usual = {name: str(value) for name, value in same.items() if value not in (None, False)}
    tables = []
    for factor in dict.fromkeys(name for name, _ in levels):
        values = {key: run for key, run in found.items() if key[0] == factor}
        below = [*unlike(base, values), *notes(numbers, [BASE, *values])]
        tables.append(([heading(base, factor), *said(base)], beside(numbers, factor, usual), below))
    write_atomically(options.out / "sweep-table.csv", numbers.to_csv(index=False, lineterminator="\n"))
    write_atomically(options.out / "sweep-table.md", "\n".join(markdown(*table) for table in tables))
    write_atomically(options.out / "sweep-table.tex", "\n".join(latex(*table) for table in tables))
    rows = by_factor(swept(base, found))
    write_atomically(options.out / "sweep.csv", rows.to_csv(index=False, lineterminator="\n"))
    page = described(rows, said(base), [*unlike(base, found), *notes(numbers, [BASE, *found])])
    write_atomically(options.out / "sweep.md", page)
    return "\n".join([*(markdown(*table) for table in tables), page])


WRITES = ("sweep-table.csv", "sweep-table.md", "sweep-table.tex", "sweep.csv", "sweep.md")
MEAN = "mean"


def accuracies(runs: Mapping[Level, Run]) -> pd.DataFrame:
    """A row per level, method and suite, and for the plain mean of several suites: factor, level, method, label, suite,
    accuracy and spread, in percent, and note, a text or "".

    spread: half of the 95% interval (Wilson's), or with several seeds the standard deviation over them. NaN where a
    suite is missing or not scored. Raises UserError as `measure` does.
    """
    frames = {}
    for key, run in runs.items():
        measured, labels = with_notes(measure(run), run).assign(speedup=math.nan), method_labels(run)
        titles = suite_titles(run)
        groups = {suite: [suite] for suite in titles}
        groups |= {MEAN: list(groups)} if len(groups) > 1 else {}
        found = pd.concat([means(measured, suites, {}).assign(suite=name) for name, suites in groups.items()])
        found["spread"] = (found["accuracy_high"] - found["accuracy_low"]) / 2
        if len(run.config.draws) > 1:
            by_seed = measured.set_index(["method", "suite"])[BY_SEED].map(np.array)
            each = zip(found["method"], found["suite"], found["accuracy"], strict=True)
            found["spread"] = [
                math.nan if math.isnan(mean) else np.std(by_seed[method][groups[suite]].mean(), ddof=1)
                for method, suite, mean in each
            ]
        texts = measured.set_index(["method", "suite"])["accuracy_note"].to_dict()
        found["note"] = [
            joined(*(f"{titles[one]}: {texts[method, one]}" for one in groups[suite] if texts.get((method, one))))
            for method, suite in zip(found["method"], found["suite"], strict=True)
        ]
        frames[key] = found.assign(label=found["method"].astype(str).map(labels))
    found = pd.concat(frames, names=["factor", "level"]).reset_index(["factor", "level"])
    return found[["factor", "level", "method", "label", "suite", "accuracy", "spread", "note"]]


def _of_all(numbers: pd.DataFrame) -> pd.DataFrame:
    """The rows of `accuracies` over all suites of their run."""
    return numbers[numbers["suite"] == numbers.groupby(["factor", "level"])["suite"].transform("last")]


def beside(numbers: pd.DataFrame, factor: str, usual: Mapping[str, str]) -> pd.DataFrame:
    """The rows of `accuracies` for one factor as texts, accuracy ± spread over all suites: a row per method, a column
    per value, that of the base first, or of two options together a group of columns for each value of the first.

    usual: the base's values, as far as they are known.
    """
    numbers = _of_all(numbers)
    own = numbers[numbers["factor"].isin([factor] if BY in factor else [factor, BASE[0]])]
    cells = own["accuracy"].map("{:.1f}".format) + " ± " + own["spread"].map("{:.1f}".format)
    own = own.assign(cell=cells.where(own["accuracy"].notna(), "-"))
    columns: dict[Any, Any] = {}
    for level, each in own.groupby("level", sort=False):
        value = str(level or usual.get(factor, BASE[0]))
        columns[tuple(value.split(BY)) if BY in factor else value] = each.set_index("method")["cell"]
    labels = own.drop_duplicates("method").set_index("method")["label"].to_dict()
    return pd.concat(columns, axis=1, names=factor.split(BY)).fillna("-").rename(index=labels)


def heading(base: Run, factor: str) -> str:
    """What the table of a factor has, in one sentence."""
    draws, mean = base.config.draws, ", a mean over the suites" if len(base.config.suites) > 1 else ""
    spread = f"the standard deviation over the seeds {', '.join(map(str, draws))}"
    return f"Accuracy (%) by {factor}{mean}; ± is {spread if len(draws) > 1 else 'half of the 95% interval'}."


def said(base: Run) -> list[str]:
    """The sentences of `captions.setting` on the base."""
    first, *others = setting(measure(base), base)
    return [f"The base, on {', '.join(suite_titles(base).values())}: {first}", *others]


def unlike(base: Run, runs: Mapping[Level, Run]) -> list[str]:
    """Those sentences on each run that are not the base's."""
    usual = setting(measure(base), base)
    found = []
    for key, run in runs.items():
        own = [sentence for sentence in setting(measure(run), run) if sentence not in usual]
        found += [f"{_named(key)}: {' '.join(own)}"] if own else []
    return found


def notes(numbers: pd.DataFrame, levels: Sequence[Level]) -> list[str]:
    """Each note of the rows of `accuracies` over all suites, with the methods, and the levels if they are not all."""
    own = _of_all(numbers).set_index(["factor", "level"])
    own = own[own.index.isin(levels)]
    found: dict[tuple[str, str], list[str]] = {}
    for (text, label), rows in own[own["note"] != ""].groupby(["note", "label"], sort=False):
        some = len(rows) < (own["label"] == label).sum()
        where = f"{', '.join(map(_named, rows.index))}: " if some else ""
        found.setdefault((where, str(text)), []).append(str(label))
    return [f"{where}{', '.join(labels)}: {text}." for (where, text), labels in found.items()]


def _named(key: Level) -> str:
    parts = zip(*(part.split(BY) for part in key), strict=True)
    return "base" if key == BASE else ", ".join(f"{name}={value}" for name, value in parts)


def markdown(sentences: Sequence[str], table: pd.DataFrame, notes: Sequence[str] = ()) -> str:
    """A table of `beside` in Markdown, with what is said of it."""
    names = [column if isinstance(column, tuple) else (column,) for column in table.columns]
    columns = [
        ", ".join(f"{of}={value}" for of, value in zip(table.columns.names, each, strict=True)) for each in names
    ]
    rows = [["Method", *columns], ["---", *["---:"] * len(columns)], *table.reset_index().to_numpy().tolist()]
    caption, rest = divided(sentences)
    return "\n".join([caption, "", *(f"| {' | '.join(row)} |" for row in rows), "", *_below(rest, notes)])


def _below(rest: str, notes: Sequence[str]) -> list[str]:
    """What stands below a table in Markdown, in lines."""
    return [*([rest, ""] if rest else []), *(f"* {note}" for note in notes), *([""] if notes else [])]


def latex(sentences: Sequence[str], table: pd.DataFrame, notes: Sequence[str] = ()) -> str:
    """A table of `beside` in LaTeX, with what is said of it; needs booktabs."""
    caption, rest = divided(sentences)
    shown, *under = (re.sub(r"([%_&#$])", r"\\\1", text).replace("±", r"$\pm$") for text in (caption, rest, *notes))
    text = table.rename_axis(index=None).to_latex(escape=True, caption=shown, multicolumn_format="c")
    small = "\\\\\n".join(filter(None, under))
    end = r"\end{table}"
    return text.replace("±", r"$\pm$").replace(
        end, f"\\par\\raggedright\\footnotesize {small}\n{end}" if small else end
    )


def described(rows: pd.DataFrame, sentences: Sequence[str] = (), notes: Sequence[str] = ()) -> str:
    """The rows of `swept` as a page."""
    lines = [f"| {' | '.join(HEADINGS)} |", "|---|---|---:|---:|---:|---:|---:|---:|---|---|---:|"]
    for row in rows.to_dict("records"):
        counts = [row[name] for name in ("pairs", "swapped", "swapped_shown")]
        tau = "-" if math.isnan(row["kendall"]) else f"{row['kendall']:.2f}"
        cells = [row["factor"], row["level"], row["methods"], tau, *counts]
        if math.isnan(row["change"]):
            cells += ["other problems" if row["methods"] else "no method of both", "", "", 0]
        else:
            cells += [f"{row['change']:+.1f}", row["change_of"]]
            cells += [f"{row['change_low']:+.1f} to {row['change_high']:+.1f}", row["change_problems"]]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, "", *_below(" ".join(sentences), notes)])


def main(line: list[str] | None = None) -> int:
    """The command line."""
    print(sweep(parsed(SweepOptions, line, __doc__)))
    return 0


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    sys.exit(one_line_errors(main))
