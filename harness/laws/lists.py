"""Factorization error where it has a closed form: shuffles of one-token items, at temperature 1.

A shuffle of n different items is right in any order. So each item alone can be drawn uniformly, but not all of them at
once: q items drawn independently from the r that are left are all different with probability r! / ((r-q)! r^q). With
the separators given and the items masked, independent draws can do no better, and draws one after another are always
right. The table compares this with what decoders reach with a model, with the separators given and for a whole response
(after ParallelBench, arXiv 2510.04767). SSD is left out: it is defined at temperature 0 only.
"""

import math
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure
from rich.progress import track
from scipy.stats import binomtest

from harness.methods.presets import PRESETS
from harness.suites.lists import list_is_right, read_list, write_list
from harness.suites.registry import suite_named
from harness.suites.spec import Problem
from harness.suites.splits import problems
from model_wrappers import Backbone, decode
from model_wrappers.chat import encode_question, response_text
from model_wrappers.decoders import Method, name_of
from model_wrappers.sampling import quotas

ITEMS_A_STEP = (1, 2, 3, 5)  # a list has at most five items


@dataclass(frozen=True)
class Row:
    """A decoder in the table: `items` a step where the separators are given, and a preset for a whole response."""

    label: str
    method: str
    options: dict[str, Any]
    items: int | None
    preset: str | None


ROWS = [
    *(
        Row(f"LLaDA, {items} a step, {name}", "llada", {"remasking": remasking}, items, None)
        for remasking, name in (("random", "random"), ("low_confidence", "low confidence"))
        for items in ITEMS_A_STEP
    ),
    *(
        Row(PRESETS[name].label, name_of(PRESETS[name].method), {}, None, name)
        for name in ("llada", "llada/2", "llada/4", "llada/8", "ddosp")
    ),
    Row("DCD", "dcd", {}, 1, "dcd"),
    *(
        Row(PRESETS[name].label, name_of(PRESETS[name].method), PRESETS[name].options, None, name)
        for name in ("threshold", "factor", "entropy", "fef-1", "fef-2", "fef-4")
    ),
]
COMPLETING = ("threshold", "factor", "entropy", "fef")  # they need no count of items per step to complete a response


def distinct_probability(counts: list[int]) -> float:
    """Probability that counts[k] items at a time, each drawn uniformly from those that are left, make a shuffle."""
    left, probability = sum(counts), 1.0
    for count in counts:
        probability *= math.perm(left, count) / left**count
        left -= count
    return probability


def lists_section(backbone: Backbone, count: int, seed: int = 0) -> pd.DataFrame:
    """Percent right on `count` shuffles of the test split, one draw each at temperature 1, with 95% Wilson intervals.

    Columns: method, closed form (mean over the problems), separators given, its interval and forwards, whole response,
    its interval and forwards. An experiment that a row does not have is NaN.
    """
    every = problems("lists", "test", 100 * count)
    shuffles = list(islice((problem for problem in every if problem.row["task"] == "shuffle"), count))
    return pd.DataFrame([_measure(backbone, row, shuffles, seed) for row in track(ROWS, "lists")])


def _measure(backbone: Backbone, row: Row, shuffles: list[Problem], seed: int) -> dict[str, Any]:
    measured: dict[str, Any] = {"method": row.label}
    if row.items is not None:
        closed = [distinct_probability(_counts(problem, row.items)) for problem in shuffles]
        measured["closed form, %"] = 100 * sum(closed) / len(closed) if row.method == "llada" else math.nan
    if row.items is not None or row.method in COMPLETING:
        outcomes = [_complete(backbone, row, problem, seed + i) for i, problem in enumerate(shuffles)]
        measured |= _summary("separators given", outcomes)
    if row.preset is not None:
        outcomes = [_respond(backbone, row.preset, problem, seed + i) for i, problem in enumerate(shuffles)]
        measured |= _summary("whole response", outcomes)
    return measured


def _counts(problem: Problem, items: int) -> list[int]:
    n = len(problem.row["items"])
    return quotas(n, -(-n // items))


def _summary(name: str, outcomes: list[tuple[bool, int]]) -> dict[str, Any]:
    right = sum(correct for correct, _ in outcomes)
    interval = binomtest(right, len(outcomes)).proportion_ci(method="wilson")
    return {
        f"{name}, %": 100 * right / len(outcomes),
        f"{name}, low": 100 * interval.low,
        f"{name}, high": 100 * interval.high,
        f"{name}, forwards": sum(forwards for _, forwards in outcomes) / len(outcomes),
    }


def _complete(backbone: Backbone, row: Row, problem: Problem, seed: int) -> tuple[bool, int]:
    """Whether the items are a shuffle when the separators are given, and the forwards it took."""
    tokenizer = backbone.text_tokenizer()
    layout = torch.tensor(tokenizer(write_list(problem.row["items"]), add_special_tokens=False).input_ids)
    words = [tokenizer(f" {item}", add_special_tokens=False).input_ids for item in problem.row["items"]]
    given = layout.masked_fill(torch.isin(layout, torch.tensor(words)), backbone.mask_id)
    options = dict(row.options)
    if row.items is not None:
        options["steps"] = len(_counts(problem, row.items))
    return _outcome(backbone, problem, row.method, len(layout), seed, given=given, **options)


def _respond(backbone: Backbone, preset: str, problem: Problem, seed: int) -> tuple[bool, int]:
    """Whether a whole response holds a shuffle, and the forwards it took."""
    setting = PRESETS[preset].for_suite("lists", suite_named("lists").settings_for("nano", small=True), {})
    return _outcome(backbone, problem, PRESETS[preset].method, setting.gen_length or 0, seed, **setting.options)


def _outcome(
    backbone: Backbone, problem: Problem, method: Method, gen_length: int, seed: int, **options: Any
) -> tuple[bool, int]:
    prompt_P = torch.tensor(encode_question(backbone.text_tokenizer(), problem.question))
    out = decode(backbone, prompt_P, method, gen_length=gen_length, temperature=1.0, seed=seed, **options)
    row = problem.row
    answer = read_list(response_text(backbone, out.tokens))
    return list_is_right(row["task"], row["items"], row["new"], answer), out.trace.forwards


def plot_lists(table: pd.DataFrame, path: Path) -> None:
    """Draw the share that is right, with the separators given, against items per step, beside the closed form."""
    figure = Figure(figsize=(4.8, 3.8))
    axes = figure.subplots()
    named = table.set_index("method")
    for name, marker in (("random", "o"), ("low confidence", "s")):
        rows = named.loc[[f"LLaDA, {items} a step, {name}" for items in ITEMS_A_STEP]]
        given = rows["separators given, %"]
        error = [given - rows["separators given, low"], rows["separators given, high"] - given]
        axes.errorbar(ITEMS_A_STEP, given, error, marker=marker, capsize=2, label=f"LLaDA, {name}")
    axes.plot(ITEMS_A_STEP, rows["closed form, %"], "k--", label="independent uniform draws")
    for label, style in (("FeF-DLLM (step=1)", "-"), ("DCD", ":")):
        axes.axhline(float(named["separators given, %"].loc[label]), color="grey", linestyle=style, label=label)
    axes.set(xlabel="items committed a step", ylabel="shuffles that are right, %", ylim=(0, 102))
    axes.set_xticks(ITEMS_A_STEP)
    axes.legend(fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=2, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
