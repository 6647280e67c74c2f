"""Two tables: every method compared with one of them, and the paper's numbers with a run's of the
same labels."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import pandas as pd

from harness.measures.against import ALL, against, marks_against, outside_methods
from harness.measures.intervals import means
from harness.measures.marks import with_marks
from harness.measures.table import (
    BY_SEED,
    MEAN,
    checkpoint_names,
    method_labels,
    suite_titles,
    timed,
)
from harness.suites.published import PAPER_TABLES
from tables.sheets import (
    ACCEPTANCE,
    ACCURACY,
    COLUMNS,
    SPEED,
    TableRequest,
    columns_of,
    suites_shown,
    with_checkpoints,
)
from tables.table import Table, rows_of

BELOW = ("95% interval", "after Holm")


def against_tables(request: TableRequest) -> Iterator[Table]:
    """The table of every method compared with `request.against`, if that names one: a row per
    method, its intervals below."""
    reference = request.against
    if not reference:
        return
    run = request.run
    labels = method_labels(run)
    compared = against(run, reference)
    frame = _as_printed(compared, marks_against(run, reference))
    titles = {**suite_titles(run), ALL: "All"}
    suites = {suite: titles[suite] for suite in titles if suite in set(compared["suite"])}
    # How many texts are the same is shown once: of all suites together, which come last.
    *metrics, same = COLUMNS["against"]
    last = list(suites)[-1]
    columns = columns_of(metrics, suites, timed(run))
    columns.append(replace(same, suite=last, group=suites[last]))
    rows = rows_of(frame, columns, labels)
    without = set(request.measured["method"]) - {reference, *compared["method"]}
    card = {
        "compared with": labels[reference],
        "comparisons that Holm corrects for": str(int(compared["word"].ne("").sum())),
        "without a shared problem": ", ".join(labels[name] for name in labels if name in without),
    }
    caption = "Every method beside one of them: points of accuracy, and speed."
    columns = with_checkpoints(columns, rows, [checkpoint_names(run, row.key) for row in rows])
    table = request.table("against", caption, columns, rows, compared, card=card)
    yield replace(table, below=BELOW)


def _as_printed(compared: pd.DataFrame, marks: Mapping[str, Mapping[Any, str]]) -> pd.DataFrame:
    """The comparisons with their marks, and with numbers as the texts that are printed."""
    # Fewer judged problems than for the other methods of a suite make numbers hard to compare: a
    # mark says so.
    most = compared.groupby("suite")["judged"].transform("max")
    pairs = list(zip(compared["method"], compared["suite"], strict=True))
    letters = {name: [marks[name].get(pair, "") for pair in pairs] for name in marks}
    fewer = ["i" if few else "" for few in compared["judged"] < most]
    needed = [f" ({count:,.0f})" if math.isfinite(count) else "" for count in compared["needed"]]
    return compared.assign(
        points_marks=[few + text for few, text in zip(fewer, letters["points"], strict=True)],
        speed_marks=letters["speed"],
        shown=[word + more for word, more in zip(compared["word"], needed, strict=True)],
        same_text=[f"{same} of {items}" for same, items in compared[["same", "items"]].to_numpy()],
    )


SECTIONS = (
    "main_results",
    "ablation_training",
    "ablation_speculative",
    "ablation_draft_model",
    "ablation_window_size",
)
VALUES = (ACCURACY.name, SPEED.name, ACCEPTANCE.name)
TIDY = [
    "method",
    "label",
    "suite",
    *(f"{source}{value}" for value in VALUES for source in ("paper_", "")),
]


def paper_numbers() -> pd.DataFrame:
    """The paper's five tables as one frame, a row per label and suite (MEAN among them).

    Returns:
        label, suite, and the numbers as printed: paper_accuracy and paper_acceptance_percent in
        percent, paper_speedup as LLaDA's time over the method's; NaN where the paper has none.
    """
    paper = _paper()
    rows: list[tuple[Any, ...]] = []
    for row in chain.from_iterable(paper[section] for section in SECTIONS):
        label = row["method"]
        acceptance = row.get("acceptance", repeat(None))
        numbers = zip(paper["suites"], row["acc"], row["speed"], acceptance, strict=False)
        rows += [(label, *of_suite) for of_suite in numbers]
        rows.append((label, MEAN, row.get("mean_acc"), row.get("mean_speed"), None))
    frame = pd.DataFrame(rows, columns=["label", "suite", *(f"paper_{value}" for value in VALUES)])
    # Several tables repeat a row, only some with its acceptance: first() skips NaN.
    return frame.groupby(["label", "suite"], sort=False, as_index=False).first()


def with_paper_numbers(request: TableRequest) -> pd.DataFrame:
    """The run's rows whose label, decoder and suite the paper has, with the paper's numbers.

    Methods from outside the project are added, without numbers of the paper. The suite MEAN is
    there if the run has all of the paper's suites; the paper's mean is the printed one.
    """
    run = request.run
    suites = [suite for suite in suite_titles(run) if suite in _paper()["suites"]]
    frame = with_marks(request.measured[request.measured["suite"].isin(suites)], run)
    if len(suites) == len(_paper()["suites"]):
        frame = pd.concat([frame, means(frame, suites)], ignore_index=True)
    frame = frame.assign(label=frame["method"].map(method_labels(run)))
    # Anybody may give a decoder a label of the paper's, so what decodes must be the one that it
    # begins with.
    named = frame["label"].str.extract(r"([\w-]+)")[0].str.lower().str.removesuffix("-dllm")
    decoders = {name: method.method for name, method in run.config.methods.items()}
    printed = frame[named == frame["method"].map(decoders)]
    printed = printed.merge(paper_numbers(), on=["label", "suite"])
    others = frame[frame["method"].isin(outside_methods(run))]
    if printed.empty or others.empty:
        return printed
    return pd.concat([printed, others], ignore_index=True)


def paper_tables(request: TableRequest) -> Iterator[Table]:
    """The table of the paper's numbers and the run's, if it is wanted and the paper has any of the
    run's rows: for every method a row of the paper's, then one of the run's."""
    beside = with_paper_numbers(request) if request.paper else pd.DataFrame()
    if beside.empty:
        return
    run = request.run
    labels = method_labels(run)
    metrics = [ACCURACY, SPEED]
    if beside[f"paper_{ACCEPTANCE.name}"].notna().any():
        metrics.append(ACCEPTANCE)
    suites = suites_shown(beside, suite_titles(run))
    columns = columns_of(metrics, suites, timed(run))
    # The paper's numbers compete for the best among themselves; marks are about our records.
    flags = {"accuracy_full": True, "speed_full": True}
    no_marks = dict.fromkeys(("accuracy_marks", "speed_marks", "forward_marks"), "")
    printed = {value: beside[f"paper_{value}"] for value in VALUES}
    sources = {
        "paper": beside.drop(columns=BY_SEED).assign(**printed, **flags, **no_marks),
        "measured": beside,
    }
    frames = [
        frame.assign(method=frame["method"] + f", {source}", source=source)
        for source, frame in sources.items()
    ]
    named = {
        f"{method}, {source}": f"{label}, {source}"
        for method, label in labels.items()
        for source in sources
    }
    # A remark is on a label alone, or on a label and a suite.
    shown = {(label, "") for label in beside["label"]}
    shown |= set(zip(beside["label"], beside["suite"], strict=True))
    card = {
        f"the paper's {label} {suite}".strip(): text
        for label, suite, text in _paper()["remarks"]
        if (label, suite) in shown
    }
    yield request.table(
        "paper",
        "The paper's numbers (LLaDA-8B-Instruct on 8 x A100 80GB) above measured ones.",
        columns,
        rows_of(pd.concat(frames), columns, named),
        beside[TIDY],
        request.measured[request.measured["suite"].isin(suites)],
        card,
    )


def _paper() -> dict[str, Any]:
    return json.loads(PAPER_TABLES.read_text(encoding="utf-8"))
