"""The paper's numbers beside a run's own, method by method where their labels agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from harness.errors import UserError
from harness.records import Run
from tables.captions import setting
from tables.layout import ACCURACY, MEAN, SPEED, Table, grid, mean_rows, with_notes
from tables.measures import method_labels, suite_titles

NUMBERS = Path(__file__).with_name("paper_tables.json")
SECTIONS = ("main_results", "ablation_training", "ablation_speculative")
CAPTION = (
    "The paper's numbers (LLaDA-8B-Instruct on 8 x A100 80GB) above measured ones: accuracy (Acc., %) and wall-clock "
    "speedup over LLaDA (Speed).",
    "The best accuracy of either kind is in bold, the fastest speed underlined.",
)
TIDY = ["method", "label", "suite", "paper_accuracy", "accuracy", "paper_speedup", "speedup"]


def paper_numbers() -> pd.DataFrame:
    """The paper's main table and its ablations of training and speculation: label, suite ("mean" too), numbers.

    paper_accuracy in percent, paper_speedup as a ratio to LLaDA's wall-clock, both as printed (paper_tables.json).
    """
    paper = _paper()
    rows = [
        {"label": row["method"], "suite": suite, "paper_accuracy": accuracy, "paper_speedup": speed}
        for section in SECTIONS
        for row in paper[section]
        for suite, accuracy, speed in zip(
            [*paper["suites"], MEAN], [*row["acc"], row["mean_acc"]], [*row["speed"], row["mean_speed"]], strict=True
        )
    ]
    return pd.DataFrame(rows).drop_duplicates(["label", "suite"], ignore_index=True)


def beside_paper(measured: pd.DataFrame, run: Run) -> pd.DataFrame:
    """`measured`, from `measures.measure`, with the paper's numbers: the rows whose method and suite the paper has.

    The suite "mean" is there if the run has all of the paper's suites; the paper's mean is the printed one. Raises
    UserError if no row is left.
    """
    labels = method_labels(run)
    paper = paper_numbers()
    suites = [suite for suite in suite_titles(run) if suite in _paper()["suites"]]
    frame = with_notes(measured[measured["suite"].isin(suites)], run)
    if len(suites) == len(_paper()["suites"]):
        frame = pd.concat([frame, mean_rows(frame, suites)], ignore_index=True)
    frame = frame.assign(label=frame["method"].map(labels)).merge(paper, on=["label", "suite"])
    if frame.empty:
        known = ", ".join(paper["label"].unique())
        raise UserError(
            f"--paper: no method of this run is in the paper's tables by its label and suite; labels: {known}"
        )
    return frame


def paper_table(beside: pd.DataFrame, measured: pd.DataFrame, run: Run) -> Table:
    """The table of `beside_paper`: for every method a row of the paper's accuracies and speedups, then the run's."""
    groups = {suite: title for suite, title in suite_titles(run).items() if suite in set(beside["suite"])}
    sentences = [*CAPTION, *setting(measured[measured["suite"].isin(list(groups))], run)]
    if MEAN in set(beside["suite"]):
        groups[MEAN] = "Mean"
    reported = (beside["label"] == "LLaDA") & (beside["suite"] == "mbpp")
    printed = beside.assign(
        accuracy=beside["paper_accuracy"],
        speedup=beside["paper_speedup"],
        accuracy_note=reported.map({True: _paper()["main_results_note"], False: ""}),
        speed_note="",
        accuracy_full=True,
        speed_full=True,
    )
    sources = {"paper": printed, "measured": beside}
    frame = pd.concat(
        [rows.assign(method=rows["method"] + f", {source}", source=source) for source, rows in sources.items()]
    )
    labels = {
        f"{method}, {source}": f"{label}, {source}"
        for method, label in method_labels(run).items()
        for source in sources
    }
    cells, notes = grid(frame, (ACCURACY, SPEED), labels, groups)
    return Table("paper", " ".join(sentences), cells, notes)


def _paper() -> dict[str, Any]:
    numbers: dict[str, Any] = json.loads(NUMBERS.read_text(encoding="utf-8"))
    return numbers
