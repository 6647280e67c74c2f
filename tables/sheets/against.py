"""The tables of every method compared with one, and of the paper's numbers and a run's, where
labels agree."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from harness.measures.against import ALL, NOT_SHOWN, against, outside_methods
from harness.measures.captions import setting, timing
from harness.measures.notes import against_reference, joined, lettered, with_notes
from harness.measures.table import method_labels, suite_titles, timed
from harness.records.store import Run
from harness.suites.published import PAPER_TABLES
from tables.sheets import (
    ACCEPTANCE,
    ACCURACY,
    MEAN,
    MEAN_TITLE,
    SPEED,
    Cell,
    Sheet,
    Table,
    TableRequest,
    grid,
    mean_rows,
    number_text,
    shown_metrics,
)
from tables.sheets.suites import INTERVAL, with_checkpoints

SAME = "Same tokens"
HEADINGS = ("Points", "Speed", SAME)
AFTER_HOLM = "after Holm"
WORDS = "Ahead, behind, level and not shown are after Holm over the {} comparisons of the table."


def against_table(
    compared: pd.DataFrame, measured: pd.DataFrame, run: Run, reference: str
) -> Table:
    """The frame of `measures.against.against` as a table: a row per method, its intervals below."""
    labels = method_labels(run)
    titles = suite_titles(run)
    groups = {suite: title for suite, title in titles.items() if suite in set(compared["suite"])}
    if ALL in set(compared["suite"]):
        groups[ALL] = "All"
    shown = HEADINGS if timed(run) else tuple(heading for heading in HEADINGS if heading != "Speed")
    wide = [
        (suite, heading)
        for suite in groups
        for heading in shown
        if heading != SAME or suite == list(groups)[-1]
    ]
    methods = list(compared["method"].unique())
    noted = with_notes(measured, run, against_reference(run, reference)).set_index(
        ["method", "suite"]
    )
    most = compared.groupby("suite")["judged"].transform("max")
    both = zip(compared["judged"], most, strict=True)
    fewer = [f"over {own} of {of} problems" if own < of else "" for own, of in both]
    compared = compared.assign(
        points_note=[
            joined(few, text)
            for few, text in zip(
                fewer, _notes(compared, noted, "accuracy_note", run, reference), strict=True
            )
        ],
        speed_note=_notes(compared, noted, "seconds_note", run, reference),
    )
    marked = ["points_note", *(["speed_note"] if "Speed" in shown else [])]
    letters = lettered(text for name in marked for text in compared[name] if text)
    rows = {(row["method"], row["suite"]): row for row in compared.to_dict("records")}
    body: list[Any] = []
    index = []
    for method in methods:
        body += zip(
            *(_cells(rows.get((method, suite)), heading, letters) for suite, heading in wide),
            strict=True,
        )
        index += [labels[method], INTERVAL, AFTER_HOLM]
    minor = frozenset(number for number in range(len(body)) if number % 3)
    columns = pd.MultiIndex.from_tuples([(groups[suite], heading) for suite, heading in wide])
    cells = pd.DataFrame(body, index=index, columns=columns, dtype=object)
    name = labels[reference]
    missing = [
        labels[method]
        for method in measured["method"].unique()
        if method not in {*methods, reference}
    ]
    notes = tuple((letter, text) for text, letter in letters.items())
    sentences = [
        f"Every method beside {name}: points of accuracy and speed.",
        WORDS.format(int(compared["word"].ne("").sum())),
        *(
            [f"Without {', '.join(missing)}, which share no problem with it here."]
            if missing
            else []
        ),
        *setting(measured, run, timing(run)),
    ]
    return Table("against", sentences, with_checkpoints(cells, methods, minor, run), notes, minor)


def _notes(
    compared: pd.DataFrame, noted: pd.DataFrame, name: str, run: Run, reference: str
) -> list[str]:
    """The notes of `with_notes` on the numbers that are compared, of the method and of the one
    beside it; "" for all suites together."""
    texts = noted[name].to_dict()
    found = []
    for method, suite in zip(compared["method"], compared["suite"], strict=True):
        beside = texts.get((reference, suite), "")
        if beside:
            beside = f"{method_labels(run)[reference]}: {beside}"
        found.append(joined(texts.get((method, suite), ""), beside))
    return found


def _cells(
    row: dict[Any, Any] | None, heading: str, letters: dict[str, str]
) -> tuple[Cell, Cell, Cell]:
    """What a method has in a column: the value, below it the interval, and the word of points."""
    none = Cell("")
    if row is None:
        return Cell("-"), none, none
    if heading == SAME:
        return Cell(f"{row['same']} of {row['items']}"), none, none
    name, decimals = ("points", 1) if heading == "Points" else ("speed", 2)
    ends = [number_text(row[f"{name}_{end}"], decimals) for end in ("low", "high")]
    interval = none if pd.isna(row[f"{name}_low"]) else Cell(" to ".join(ends))
    if heading == "Speed":
        return (
            Cell(number_text(row["speed"], 2, unit="x"), mark=letters.get(row["speed_note"], "")),
            interval,
            none,
        )
    of = (
        f" ({row['needed']:,.0f})"
        if row["word"] == NOT_SHOWN and math.isfinite(row["needed"])
        else ""
    )
    points = Cell(number_text(row["points"], 1, "+"), mark=letters.get(row["points_note"], ""))
    return points, interval, Cell(row["word"] + of)


def against_sheets(request: TableRequest) -> Iterator[Sheet]:
    """Every method compared with one, if one is named."""
    if request.against:
        compared = against(request.run, request.against)
        yield Sheet(
            against_table(compared, request.measured, request.run, request.against), compared
        )


SECTIONS = ("main_results", "ablation_training", "ablation_speculative")
# The other two tables name their rows by draft / verify model and by window size. These are our
# labels for them.
NAMED_OTHERWISE = {
    "ablation_draft_model": {
        "FeF-DLLM / FeF-DLLM": "FeF-DLLM (step=4)",
        "FeF-DLLM w/o train / FeF-DLLM": "FeF-DLLM, draft w/o train (step=4)",
    },
    "ablation_window_size": {
        "4": "FeF-DLLM (step=4, window=4)",
        "8": "FeF-DLLM (step=4, window=8)",
        "16": "FeF-DLLM (step=4)",
    },
}
VALUES = (ACCURACY.value, SPEED.value, ACCEPTANCE.value)
CAPTION = "The paper's numbers (LLaDA-8B-Instruct on 8 x A100 80GB) above measured ones."
# What a reader must know of the paper's numbers: of which row, on which suites ("" is any), and a
# sentence.
ODDITIES = (
    (
        "SSD",
        "",
        (
            "In the paper SSD does not have LLaDA's accuracy; here it decodes LLaDA's tokens by"
            " construction."
        ),
    ),
    (
        "LLaDA",
        "math",
        (
            "The paper's LLaDA has 26.60 on MATH, as LLaDA's own paper has; with the configuration"
            " that is the default here LLaDA's authors have 42.7."
        ),
    ),
)
TIDY = [
    "method",
    "label",
    "suite",
    *(f"{source}{value}" for value in VALUES for source in ("paper_", "")),
]


def paper_numbers() -> pd.DataFrame:
    """The five tables of the paper as one: label, suite ("mean" too), numbers; a row of several
    tables is here once.

    As printed: paper_accuracy and paper_acceptance_percent in percent, paper_speedup over LLaDA's
    time; NaN for none.
    """
    paper = _paper()
    labelled = [(row["method"], row) for section in SECTIONS for row in paper[section]]
    for section, labels in NAMED_OTHERWISE.items():
        labelled += [(label, paper[section][name]) for name, label in labels.items()]
    rows = []
    for label, row in labelled:
        for column, suite in enumerate(paper["suites"]):
            acceptance = row["acceptance"][column] if "acceptance" in row else None
            rows.append([label, suite, row["acc"][column], row["speed"][column], acceptance])
        rows.append([label, MEAN, row.get("mean_acc"), row.get("mean_speed"), None])
    frame = pd.DataFrame(rows, columns=["label", "suite", *(f"paper_{value}" for value in VALUES)])
    return frame.groupby(["label", "suite"], sort=False, as_index=False).first()


def beside_paper(measured: pd.DataFrame, run: Run) -> pd.DataFrame:
    """`measured`, from `table.measure`, with the paper's numbers: rows with a label, decoder and
    suite that it has.

    Methods from outside the project have rows without such numbers. The suite "mean" is there if
    the run has all of the paper's suites; the paper's mean is the printed one.
    """
    suites = [suite for suite in suite_titles(run) if suite in _paper()["suites"]]
    frame = with_notes(measured[measured["suite"].isin(suites)], run)
    if len(suites) == len(_paper()["suites"]):
        frame = pd.concat([frame, mean_rows(frame, suites)], ignore_index=True)
    frame = frame.assign(label=frame["method"].map(method_labels(run)))
    # Anybody may give a decoder a label of the paper's, so what decodes must be the one that it
    # begins with.
    named = frame["label"].str.extract(r"([\w-]+)")[0].str.lower().str.removesuffix("-dllm")
    decoders = frame["method"].map(
        {name: method.method for name, method in run.config.methods.items()}
    )
    printed = frame[named == decoders].merge(paper_numbers(), on=["label", "suite"])
    others = frame[frame["method"].isin(outside_methods(run))]
    if printed.empty or others.empty:
        return printed
    return pd.concat([printed, others], ignore_index=True)


def paper_table(beside: pd.DataFrame, measured: pd.DataFrame, run: Run) -> Table:
    """The table of `beside_paper`, which must not be empty: for every method a row of the paper's,
    then the run's."""
    accepted = beside[f"paper_{ACCEPTANCE.value}"].notna().any()
    metrics = shown_metrics((ACCURACY, SPEED, ACCEPTANCE) if accepted else (ACCURACY, SPEED), run)
    groups = {
        suite: title for suite, title in suite_titles(run).items() if suite in set(beside["suite"])
    }
    shown = {
        (label, suite)
        for label, own in zip(beside["label"], beside["suite"], strict=True)
        for suite in (own, "")
    }
    oddities = [sentence for label, suite, sentence in ODDITIES if (label, suite) in shown]
    shown_rows = measured[measured["suite"].isin(list(groups))]
    sentences = [CAPTION, *setting(shown_rows, run, timing(run)), *oddities]
    if MEAN in set(beside["suite"]):
        groups[MEAN] = MEAN_TITLE
    reported = (beside["label"] == "LLaDA") & (beside["suite"] == "mbpp")
    printed = beside.assign(
        **{value: beside[f"paper_{value}"] for value in VALUES},
        accuracy_note=reported.map({True: _paper()["main_results_note"], False: ""}),
        speed_note="",
        forward_note="",
        accuracy_full=True,
        speed_full=True,
    )
    sources = {"paper": printed, "measured": beside}
    named = [
        rows.assign(method=rows["method"] + f", {source}", source=source)
        for source, rows in sources.items()
    ]
    pairs = [(pair, source) for pair in method_labels(run).items() for source in sources]
    labels = {f"{method}, {source}": f"{label}, {source}" for (method, label), source in pairs}
    cells, notes = grid(pd.concat(named), metrics, labels, groups)
    return Table("paper", sentences, cells, notes)


def _paper() -> dict[str, Any]:
    return json.loads(PAPER_TABLES.read_text(encoding="utf-8"))


def paper(request: TableRequest) -> Iterator[Sheet]:
    """The paper's numbers and the run's, if they are wanted and the paper has any of its rows."""
    if request.paper and len(beside := beside_paper(request.measured, request.run)):
        yield Sheet(paper_table(beside, request.measured, request.run), beside[TIDY])
