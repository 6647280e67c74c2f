"""The main table and the ablations of a run: which methods are the rows of which table.

A run may hold the methods of several tables; each table that has its rows is rendered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from harness.groups import GROUPS
from harness.records import Run
from tables.layout import ACCEPTANCE, ACCURACY, FORWARDS, METRICS, SPEED, Metric, Table, suites_table
from tables.measures import REFERENCE


@dataclass(frozen=True)
class Ablation:
    """A table of the paper's ablations: its title and columns; its rows are the presets of the group of its name."""

    title: str
    metrics: Sequence[Metric] = METRICS


ABLATIONS = {
    "training": Ablation("Training effects: position-conditioned training against plain training on the same data."),
    "speculation": Ablation("Speculation: the same decoder with and without (w/o SD)."),
    "draft": Ablation(
        "Draft model: the target's own weights, or those before training.", (ACCURACY, SPEED, ACCEPTANCE)
    ),
    "window-size": Ablation(
        "Window size; FeF-DLLM (step=4) has a window of 16.", (ACCURACY, SPEED, FORWARDS, ACCEPTANCE)
    ),
}
ONLY_ABLATION = {
    method for name in ABLATIONS for method in GROUPS[name] if method not in {*GROUPS["main"], *GROUPS["decoders"]}
}


def tables_of(measured: pd.DataFrame, run: Run) -> list[Table]:
    """The main table, of all methods that belong to no ablation alone, and every ablation the run has rows for.

    An ablation is there if the run has at least two of its methods beside LLaDA, and one of them is its own.
    """
    ran = list(dict.fromkeys(measured["method"]))
    main = [method for method in ran if method not in ONLY_ABLATION] or ran
    tables = [suites_table("main", "", measured, run, main)]
    for name, ablation in ABLATIONS.items():
        rows = [method for method in GROUPS[name] if method in ran]
        compared = [method for method in rows if method != REFERENCE]
        if len(compared) > 1 and any(method in ONLY_ABLATION for method in compared):
            shown = rows if name == "training" else compared
            tables.append(suites_table(name, ablation.title, measured, run, shown, ablation.metrics))
    return tables
