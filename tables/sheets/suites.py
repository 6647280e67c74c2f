"""The table of methods by suites, for the main table and the paper's ablations, and which methods
are the rows of each."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import pandas as pd

from harness.measures.intervals import UNCERTAINTY, means, with_intervals
from harness.measures.marks import options_of, setting_of, with_marks
from harness.measures.table import (
    MEASURES,
    REFERENCE,
    checkpoint_names,
    method_labels,
    suite_titles,
    timed,
)
from harness.methods.presets import GROUPS
from harness.records.store import Run
from harness.suites.published import LENGTHS, published_accuracy
from model_wrappers.options import first_few
from tables.sheets import (
    ACCEPTANCE,
    ACCURACY,
    FORWARDS,
    METRICS,
    PUBLISHED,
    SPEED,
    TableRequest,
    columns_of,
    suites_shown,
    with_checkpoints,
)
from tables.table import Column, Table, rows_of

SMALLEST_P = 0.001  # smaller p-values are printed as "<0.001"
MAIN = "Accuracy (%), and seconds and forward passes of LLaDA over the method's."


@dataclass(frozen=True)
class Ablation:
    """A table of the paper's ablations; its rows are the presets of the group with its name.

    Attributes:
        caption: one sentence.
        metrics: the columns under each suite.
        lossless: whether its rows must decode the same tokens; the card then says if they do.
    """

    caption: str
    metrics: Sequence[Column] = METRICS
    lossless: bool = False


ABLATIONS = {
    "training": Ablation(
        "Training effects: position-conditioned training against plain training on the same data."
    ),
    "speculation": Ablation(
        "Speculation: the same decoder with and without (w/o SD).", lossless=True
    ),
    "draft": Ablation(
        "Draft model: the target's own weights, or those before training.",
        (ACCURACY, SPEED, ACCEPTANCE),
        True,
    ),
    "window-size": Ablation(
        "Window size; FeF-DLLM (step=4) has a window of 16.",
        (ACCURACY, SPEED, FORWARDS, ACCEPTANCE),
        True,
    ),
}
# Methods of an ablation that are in neither the main group nor the decoders'.
ONLY_ABLATION = {
    method
    for name in ABLATIONS
    for method in GROUPS[name]
    if method not in {*GROUPS["main"], *GROUPS["decoders"]}
}


def ablations(request: TableRequest) -> Iterator[Table]:
    """The main table and the paper's ablations, as far as the run has methods for them.

    An ablation is shown if the run has at least two of its methods besides LLaDA, of which at least
    one is in ONLY_ABLATION. The main table has all methods but those of ONLY_ABLATION that an
    ablation shows. It is left out if the ablations show all of its methods. p-values are adjusted
    within each table.

    Yields:
        The tables, the main one first.
    """
    ran = list(request.measured["method"].unique())
    shown: dict[str, list[str]] = {}
    for name in ABLATIONS:
        rows = [method for method in GROUPS[name] if method in ran]
        compared = [method for method in rows if method != REFERENCE]
        if len(compared) > 1 and ONLY_ABLATION.intersection(compared):
            # Training is compared with LLaDA as well; the others compare FeF-DLLM with itself.
            shown[name] = rows if name == "training" else compared
    # A method of an ablation that did not come about is shown in the main table instead.
    in_ablations = set(chain.from_iterable(shown.values()))
    main = [method for method in ran if method not in ONLY_ABLATION & in_ablations]
    if not in_ablations.issuperset(main):
        shown = {"main": main, **shown}
    by_method = request.measured.set_index("method")
    for name, methods in shown.items():
        measured = by_method.loc[methods].reset_index()
        yield suites_table(request, name, measured, ABLATIONS.get(name, Ablation(MAIN)))


def suites_table(
    request: TableRequest, name: str, measured: pd.DataFrame, ablation: Ablation
) -> Table:
    """A row per method, a group of columns per suite and their mean.

    Args:
        request: says whether there are intervals and published accuracies.
        name: of the table.
        measured: rows of `measure`, with the methods in the order of the table.
        ablation: the table's caption and columns.
    """
    run = request.run
    pairs = request.pairs
    labels = method_labels(run)
    titles = suite_titles(run)
    numbers = measured[MEASURES]
    frame = with_marks(measured, run)
    sources = ""
    deviations = ""
    metrics = list(ablation.metrics)
    if request.published:
        frame, sources, deviations = with_published(frame, run)
        metrics.insert(1, PUBLISHED)
    comparisons = ""
    if pairs is not None:
        frame = with_intervals(frame, pairs)
        numbers = frame[[*MEASURES, *UNCERTAINTY]]
        comparisons = str(int(frame["p_value"].notna().sum()))
        frame["p_text"] = [_p_text(p_value) for p_value in frame["p_holm"]]
    # The mean of a single suite would repeat its column.
    if len(titles) > 1:
        frame = pd.concat([frame, means(frame, list(titles), pairs)], ignore_index=True)
    columns = columns_of(metrics, suites_shown(frame, titles), timed(run))
    if request.published:
        # Most methods are published on a few suites only; the others get no empty column.
        known = set(frame.loc[frame["published"].notna(), "suite"])
        columns = [col for col in columns if col.name != "published" or col.suite in known]
    order = {method: labels[method] for method in measured["method"].unique()}
    rows = rows_of(frame, columns, order)
    return request.table(
        name,
        ablation.caption,
        with_checkpoints(columns, rows, [checkpoint_names(run, row.key) for row in rows]),
        rows,
        numbers,
        measured,
        {
            "published accuracies": sources,
            "here otherwise (published)": deviations,
            "comparisons that p is adjusted for": comparisons,
            "same tokens": same_tokens(run, list(order)) if ablation.lossless else "",
        },
    )


def _p_text(p_value: float) -> str:
    if math.isnan(p_value):
        return ""
    return f"<{SMALLEST_P}" if p_value < SMALLEST_P else f"{p_value:.3f}"


def with_published(frame: pd.DataFrame, run: Run) -> tuple[pd.DataFrame, str, str]:
    """Add the published accuracies of a frame's methods.

    Args:
        frame: a row per method and suite.
        run: its configuration says which decoder, model and settings a method has.

    Returns:
        The frame with a column `published` (percent; NaN where nothing is published); the sources;
        and the settings that differ from the published ones. Both texts are for the card, or "".
    """
    numbers = []
    sources = []
    deviations = []
    labels = method_labels(run)
    titles = suite_titles(run)
    for method, suite in zip(frame["method"], frame["suite"], strict=True):
        config = run.config.methods[method]
        setting = setting_of(run, method, suite)
        lengths = {name: getattr(setting, name) for name in LENGTHS}
        model = run.config.models.get(config.role, {}).get(suite, "")
        settings = lengths | options_of(run, method, suite)
        published = published_accuracy(model, config.method, suite, settings)
        numbers.append(math.nan if published is None else published.percent)
        if published is None:
            continue
        sources.append(published.source)
        if published.differences:
            differences = ", ".join(published.differences)
            deviations.append(f"{labels[method]} on {titles[suite]}: {differences}")
    frame = frame.assign(published=numbers)
    return frame, "; ".join(dict.fromkeys(sources)), "; ".join(deviations)


def same_tokens(run: Run, methods: Sequence[str]) -> str:
    """A text that counts the responses on which methods with the same number of steps agree.

    Greedy, in fp32, every token must agree unless rounding decides a tie. The text names responses
    that differ. Steps are those of the run's first suite.

    Returns:
        "" if no two methods share a response, a method has no steps, or no hashes were recorded.
    """
    suites = list(run.config.suites)
    steps = {name: setting_of(run, name, suites[0]).options.get("steps") for name in methods}
    items = run.items[run.items["method"].isin(methods)]
    if "tokens_hash" not in items or None in steps.values():
        return ""
    # Another number of diffusion steps is another sequence of targets, so that only methods with
    # the same number can agree.
    keys = [items["method"].map(steps).rename("steps"), items["suite"], items["item"]]
    hashes = items["tokens_hash"].groupby(keys).agg(["size", "nunique"])
    shared = hashes[hashes["size"] > 1]
    if shared.empty:
        return ""
    unequal = shared.index[shared["nunique"] > 1]
    titles = suite_titles(run)
    names = [f"{titles[suite]} {item} (step={step})" for step, suite, item in unequal]
    text = f"{len(shared) - len(unequal)} of {len(shared)} responses"
    return f"{text}, not {first_few(names)}" if names else text
