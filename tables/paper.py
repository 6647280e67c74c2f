"""The paper's numbers beside a run's own, method by method where their labels agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from harness.errors import UserError
from harness.records import Run
from tables.captions import setting
from tables.layout import ACCURACY, MEAN, SPEED, Metric, Table, grid, mean_rows, with_notes
from tables.measures import method_labels, suite_titles

NUMBERS = Path(__file__).with_name("paper_tables.json")
SECTIONS = ("main_results", "ablation_training", "ablation_speculative")
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
    printed = (frame["label"] == "LLaDA") & (frame["suite"] == "mbpp")
    return frame.assign(paper_note=printed.map({True: _paper()["main_results_note"], False: ""}))


def paper_table(beside: pd.DataFrame, measured: pd.DataFrame, run: Run) -> Table:
    """The table of `beside_paper`: under every suite, accuracy and speedup in the paper and in the run."""
    groups = {suite: title for suite, title in suite_titles(run).items() if suite in set(beside["suite"])}
    if MEAN in set(beside["suite"]):
        groups[MEAN] = "Mean"
    metrics = (
        Metric("paper_accuracy", "Acc. (paper)", "", "bold", "paper_note"),
        ACCURACY,
        Metric("paper_speedup", "Speed (paper)", "x", "underline"),
        SPEED,
    )
    cells, notes = grid(beside, metrics, method_labels(run), groups)
    setup = _paper()["setup"]
    caption = (
        f"The paper's numbers ({setup['backbone']}, {setup['hardware']}) beside measured ones: accuracy (Acc., %) and "
        "wall-clock speedup over LLaDA (Speed). The best accuracy of a column is in bold, its fastest speed underlined."
    )
    sentences = [caption, *setting(measured[measured["suite"].isin(list(groups))], run)]
    return Table("paper", " ".join(sentences), cells, notes)


def _paper() -> dict[str, Any]:
    numbers: dict[str, Any] = json.loads(NUMBERS.read_text(encoding="utf-8"))
    return numbers
