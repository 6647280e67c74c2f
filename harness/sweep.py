"""How far a comparison depends on the protocol: the same methods, with one option of the run changed at a time.

    python harness/sweep.py --methods "llada,threshold,fef-two-stream" --limit 50 --out FOLDER \\
        --vary "gen_length=64|96" --vary "dtype=bfloat16" --vary "prompt=plain" --vary "methods=llada/2,threshold"
    python harness/sweep.py --data FOLDER --model GSAI-ML/LLaDA-8B-Instruct --suite gsm8k --out FOLDER \\
        --vary "suite=opencompass:gsm8k_0shot_gen_a58960"     another configuration of the same problems

All other options are those of harness/run.py. The base and each value are an untimed run, in FOLDER/base and
FOLDER/OPTION=VALUE; the same command goes on where it was stopped. With --cross there is one for each combination of
the values. sweep-table.md and .tex have the accuracies, method by value, sweep-table.csv those of every suite. sweep.md
and sweep.csv say for each value Kendall's tau between the methods' order there and in the base, how many pairs change
places and for how many of them both runs show it, and by how much it moves a method's accuracy at most. Seeds need a
temperature.
"""

from __future__ import annotations

import logging
import math
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import combinations, product
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd
from msgspec import UNSET
from scipy.stats import kendalltau

from harness.elements import elements_of, parse_value
from harness.errors import UserError, one_line_errors
from harness.measures.against import flips_of
from harness.measures.intervals import means, paired
from harness.measures.table import BY_SEED, draws_of, measure, method_labels, suite_titles
from harness.options import checked, option, parsed
from harness.records.store import Run
from harness.runs.options import RunOptions
from harness.stats import (
    LEVEL,
    effective_trials,
    holm,
    mean_difference,
    mean_difference_interval,
    mean_difference_p_value,
)
from harness.suites.registry import split_named
from model_wrappers.options import meant

HEADINGS = [
    *("Option", "Value", "Methods", "Kendall's tau", "Pairs shown in the base", "Swapped", "Shown in both"),
    *("Largest change", "of", "95%"),
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


Level = tuple[str, str]  # options and values as text, of several joined by BY
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
    found = {}
    for key, (folder, each_run) in runs.items():
        with tempfile.TemporaryDirectory(prefix="harness-") as scratch:
            run(each_run, Path(scratch), tables=False)
        found[key] = read_run(folder)
    base = found.pop(BASE)
    numbers = accuracies({BASE: base, **found})
    usual = {name: str(value) for name, value in same.items() if value not in (None, False)}
    tables = [(caption(base, factor), beside(numbers, factor, usual)) for factor in dict.fromkeys(f for f, _ in found)]
    write_atomically(options.out / "sweep-table.csv", numbers.to_csv(index=False, lineterminator="\n"))
    write_atomically(options.out / "sweep-table.md", "\n".join(markdown(*table) for table in tables))
    write_atomically(options.out / "sweep-table.tex", "\n".join(latex(*table) for table in tables))
    rows = by_factor(swept(base, found))
    write_atomically(options.out / "sweep.csv", rows.to_csv(index=False, lineterminator="\n"))
    write_atomically(options.out / "sweep.md", described(rows))
    return "\n".join([*(markdown(*table) for table in tables), described(rows)])


WRITES = ("sweep-table.csv", "sweep-table.md", "sweep-table.tex", "sweep.csv", "sweep.md")
MEAN = "mean"


def accuracies(runs: Mapping[Level, Run]) -> pd.DataFrame:
    """A row per level, method and suite, and for the plain mean of several suites: factor, level, method, label, suite,
    accuracy and spread, in percent.

    spread: half of the 95% interval (Wilson's), or with several seeds the standard deviation over them. NaN where a
    suite is missing or not scored. Raises UserError as `measure` does.
    """
    frames = {}
    for key, run in runs.items():
        measured, labels = measure(run).assign(speedup=math.nan), method_labels(run)
        groups = {suite: [suite] for suite in suite_titles(run)}
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
        frames[key] = found.assign(label=found["method"].astype(str).map(labels))
    found = pd.concat(frames, names=["factor", "level"]).reset_index(["factor", "level"])
    return found[["factor", "level", "method", "label", "suite", "accuracy", "spread"]]


def beside(numbers: pd.DataFrame, factor: str, usual: Mapping[str, str]) -> pd.DataFrame:
    """The rows of `accuracies` for one factor as texts, accuracy ± spread over all suites: a row per method, a column
    per value, that of the base first, or of two options together a group of columns for each value of the first.

    usual: the base's values, as far as they are known.
    """
    of_all = numbers["suite"] == numbers.groupby(["factor", "level"])["suite"].transform("last")
    own = numbers[of_all & numbers["factor"].isin([factor] if BY in factor else [factor, BASE[0]])]
    cells = own["accuracy"].map("{:.1f}".format) + " ± " + own["spread"].map("{:.1f}".format)
    own = own.assign(cell=cells.where(own["accuracy"].notna(), "-"))
    columns: dict[Any, Any] = {}
    for level, each in own.groupby("level", sort=False):
        value = str(level or usual.get(factor, BASE[0]))
        columns[tuple(value.split(BY)) if BY in factor else value] = each.set_index("method")["cell"]
    labels = own.drop_duplicates("method").set_index("method")["label"].to_dict()
    return pd.concat(columns, axis=1, names=factor.split(BY)).fillna("-").rename(index=labels)


def caption(base: Run, factor: str) -> str:
    """What the table of a factor has, in one sentence."""
    models = dict.fromkeys(PurePath(name).name for names in base.config.models.values() for name in names.values())
    draws, suites = base.config.draws, suite_titles(base).values()
    counts = measure(base).groupby("suite")["items"].max() // len(draws)
    numbers = " to ".join(map(str, dict.fromkeys([counts.min(), counts.max()])))
    if "limit" in factor.split(BY):
        numbers = f"limit, of base {numbers},"
    split, seed = split_named(base.config.data) or ("", 0)
    kind = f"generated {'dev ' * (split == 'dev')}problems each{f', drawn with seed {seed}' * bool(seed)}"
    spread = f"the standard deviation over the seeds {', '.join(map(str, draws))}"
    return (
        f"Accuracy (%) by {factor}, {'mean over' if len(suites) > 1 else 'on'} {', '.join(suites)} ({numbers} "
        f"{kind if split else 'problems each'}), with {', '.join(models)}. "
        f"± is {spread if len(draws) > 1 else 'half of the 95% interval'}."
    )


def markdown(caption: str, table: pd.DataFrame) -> str:
    """A table of `beside` in Markdown."""
    names = [column if isinstance(column, tuple) else (column,) for column in table.columns]
    columns = [
        ", ".join(f"{of}={value}" for of, value in zip(table.columns.names, each, strict=True)) for each in names
    ]
    rows = [["Method", *columns], ["---", *["---:"] * len(columns)], *table.reset_index().to_numpy().tolist()]
    return "\n".join([caption, "", *(f"| {' | '.join(row)} |" for row in rows), ""])


def latex(caption: str, table: pd.DataFrame) -> str:
    """A table of `beside` in LaTeX; needs booktabs."""
    said = re.sub(r"([%_&#$])", r"\\\1", caption)
    text = table.rename_axis(index=None).to_latex(escape=True, caption=said, multicolumn_format="c")
    return text.replace("±", r"$\pm$")


def described(rows: pd.DataFrame) -> str:
    """The rows of `swept` as a page."""
    lines = [f"| {' | '.join(HEADINGS)} |", "|---|---|---:|---:|---:|---:|---:|---:|---|---|"]
    for row in rows.to_dict("records"):
        counts = [row[name] for name in ("pairs", "swapped", "swapped_shown")]
        cells = [row["factor"], row["level"], row["methods"], f"{row['kendall']:.2f}", *counts]
        if math.isnan(row["change"]):
            cells += ["other problems", "", ""]
        else:
            cells += [f"{row['change']:+.1f}", row["change_of"]]
            cells += [f"{row['change_low']:+.1f} to {row['change_high']:+.1f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


SWEEP = [
    *("factor", "level", "methods", "kendall", "pairs", "swapped", "swapped_shown"),
    *("change", "change_of", "change_low", "change_high"),
]
DRAW = ["suite", "problem", "draw", "gold"]
Pair = tuple[str, str]


def swept(base: Run, levels: Mapping[Level, Run]) -> pd.DataFrame:
    """A row for each level, (option, value) -> its run; columns are SWEEP.

    kendall: Kendall's tau-b between the methods' mean accuracies over the suites, there and in the base; NaN where one
    has no order. pairs: of methods whose order the base shows (the exact test of the mean over suites, Holm over the
    pairs of a run); swapped: of all pairs, how many stand the other way round; swapped_shown: how many of them both
    runs show. change: the largest change of a method's accuracy in points, a mean over suites of the problems of both,
    NaN without any, change_of which one, and its 95% interval, which is for this method alone and not for the largest
    of several. Raises UserError as `measure` does.
    """
    before, shown_before = _means(base), _leads(base)
    rows = []
    for (factor, level), run in levels.items():
        now, shown = _means(run), _leads(run)
        both = [method for method in before.index if method in now.index]
        pairs = list(combinations(both, 2))
        swapped = [pair for pair in pairs if _order(before, pair) * _order(now, pair) < 0]
        agreed = [pair for pair in swapped if shown_before.get(pair, 0) * shown.get(pair, 0) < 0]
        tau = float(kendalltau(before[both], now[both]).statistic) if len(both) > 1 else math.nan
        changes = {method: _change(base, run, method) for method in both}
        most = max(changes, key=lambda method: abs(changes[method][0]), default="")
        of_most = changes.get(most, (math.nan,) * 3)
        counts = (len([pair for pair in pairs if shown_before.get(pair)]), len(swapped), len(agreed))
        largest = (of_most[0], method_labels(base).get(most, ""), *of_most[1:])
        rows.append([factor, level, len(both), tau, *counts, *largest])
    return pd.DataFrame(rows, columns=SWEEP)


def by_factor(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of `swept` by factor, the one that moves accuracy most first."""
    largest = rows.assign(change=rows["change"].abs()).groupby("factor")["change"].max()
    order = largest.sort_values(ascending=False).index
    return rows.set_index("factor").loc[list(order)].reset_index()


def _means(run: Run) -> pd.Series[float]:
    """Mean accuracy over the suites, by method in the run's order; those that lack a suite are left out."""
    measured = measure(run)
    measured["method"] = measured["method"].astype(str)
    wide = measured.pivot(index="method", columns="suite", values="accuracy")
    means: pd.Series[float] = wide.dropna().mean(axis=1)
    return means[[method for method in method_labels(run) if method in means.index]]


def _order(means: pd.Series[float], pair: Pair) -> float:
    return float(means[pair[0]] - means[pair[1]])


def _leads(run: Run) -> dict[Pair, int]:
    """1 or -1 for each pair of methods whose first is shown to be more, or less, accurate than the second."""
    found: dict[Pair, tuple[float, float]] = {}
    methods = list(method_labels(run))
    for number, second in enumerate(methods):
        beside = paired(run, second)
        for first in methods[:number]:
            flips = flips_of([each for (method, _), each in beside.items() if method == first])
            if flips:
                found[first, second] = mean_difference(flips), mean_difference_p_value(flips)
    adjusted = holm([p for _, p in found.values()])
    return {
        pair: (1 if lead > 0 else -1)
        for (pair, (lead, _)), p in zip(found.items(), adjusted, strict=True)
        if lead and p < 1 - LEVEL
    }


def _change(base: Run, run: Run, method: str) -> tuple[float, float, float]:
    """Points of accuracy that a method gains by a level, on the problems of both, and its interval."""
    # Another configuration of a suite has its problems under another name, in the same order and with the same answers.
    new = [suite for suite in run.config.suites if suite not in base.config.suites]
    gone = [suite for suite in base.config.suites if suite not in run.config.suites]
    kept = [suite for suite in base.config.suites if suite not in gone]
    pairs = [*zip(kept, kept, strict=True), *zip(new, gone, strict=False)]
    names = {there: here for there, here in pairs if _same_questions(run, there, base, here)}
    sides = []
    for each, named in ((base, {here: here for here in names.values()}), (run, names)):
        own = each.items.assign(**draws_of(each, each.items["item"].to_numpy(dtype=float)))
        own = own[own["method"].astype(str) == method].dropna(subset="correct").reindex(columns=[*DRAW, "correct"])
        own["suite"] = own["suite"].astype(str).map(named)
        sides.append(own.dropna(subset="suite").astype({"correct": bool}).astype({"correct": float}))
    both = sides[0].merge(sides[1], on=DRAW)
    if both.empty:
        return math.nan, math.nan, math.nan
    flips = []
    for _, own in both.assign(change=both["correct_y"] - both["correct_x"]).groupby("suite"):
        change = own["change"].to_numpy()
        worth = effective_trials(change, own["problem"].to_numpy()) / len(own)
        flips.append((worth * (change < 0).sum(), worth * (change > 0).sum(), worth * len(own)))
    low, high = mean_difference_interval(flips)
    return 100 * mean_difference(flips), 100 * low, 100 * high


def _same_questions(run: Run, suite: str, base: Run, other: str) -> bool:
    """Whether two suites may have the same questions: generated alike, or if they are files, one file."""
    own = [run.config.suites[suite].questions, base.config.suites[other].questions]
    files = [None if each is UNSET else each.sha256 for each in own]
    generated = [each.config.data for each in (run, base) if each.config.generated]
    return files[0] == files[1] and (files[0] is not None or len({*generated}) < 2)


def main(line: list[str] | None = None) -> int:
    """The command line."""
    print(sweep(parsed(SweepOptions, line, __doc__)))
    return 0


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    sys.exit(one_line_errors(main))
