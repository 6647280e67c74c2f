"""Tokens, calls and seconds of responses by each of the field's definitions, and accuracy against
parallelism.

The same responses have other numbers by another definition: counting padding more than doubles the
tokens per forward. A series is one decoder at several settings. It has a curve of accuracy over
tokens per forward, and the area under that curve (AUP).
"""

import fnmatch
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.integrate import trapezoid

from harness.errors import UserError
from harness.measures.marks import setting_of
from harness.measures.table import (
    COSTS,
    PAIR,
    REFERENCE,
    UNTIL,
    by_name,
    by_pair,
    checked_items,
    measure_windows,
    method_labels,
    other_tokenizers,
    suite_titles,
    timed,
)
from harness.methods.presets import TUNED
from harness.records.schema import Method
from harness.records.store import Run
from harness.stats import LEVEL, SEED, Floats
from harness.suites.published import LENGTHS

TOKENS = ["prompt_tokens", "content_tokens", "eos_tokens", "post_stop_tokens"]
PASSES = ["forwards", "token_forwards", "cached_tokens"]
QUANTILES = {"seconds_median": 0.5, "seconds_90": 0.9, "seconds_99": 0.99}
# Measure -> (numerator, denominator): the ratio of their sums over the responses, or the mean of
# the responses' ratios if the name ends with MEAN_OF_RATIOS. Tokens of a response:
#   content    before the first EOS or end of turn
#   written    content, and what follows the stop without being EOS
#   generated  written, and EOS, which pads
#   seen       written, and the prompt
# docs/measuring.md says who uses which measure.
DEFINITIONS = {
    "tpf_content": ("content", "forwards"),
    "tpf_content_mean": ("content", "forwards"),
    "tpf_written": ("written", "forwards"),
    "tpf_generated": ("generated", "forwards"),
    "tps_content": ("content", "seconds"),
    "tps_content_mean": ("content", "seconds"),
    "tps_written": ("written", "seconds"),
    "tps_generated": ("generated", "seconds"),
    "tps_seen": ("seen", "seconds"),
    "positions_per_token": ("token_forwards", "content"),
}
MEAN_OF_RATIOS = "_mean"
LEDGER = [
    *PAIR,
    "items",
    "seconds_per_item",
    *QUANTILES,
    *UNTIL,
    *TOKENS,
    *PASSES,
    *DEFINITIONS,
    "committed_per_window",
]
DRAWS = "draw_share"
# Older records lack these: a ledger has their columns if any response has a number.
RESOURCES = [DRAWS, *COSTS]


def token_ledger(run: Run) -> pd.DataFrame:
    """Tokens, calls and seconds by method and suite.

    Args:
        run: as read.

    Returns:
        A row per method and suite that has items, in the configuration's order. Columns are LEDGER,
        and those of RESOURCES that have a number.

        seconds_per_item, UNTIL, TOKENS, PASSES: means of a response. QUANTILES: of a
        response's seconds. DEFINITIONS: see there; positions_per_token: token positions that went
        through the model per token of content. DRAWS: the share of the seconds spent in random
        draws. COSTS: means of a response, but peak_bytes the maximum. NaN stands where the record
        has no counts; in all times, energies and measures per second if the run was not timed; and
        in all DEFINITIONS for a method with another tokenizer.

    Raises:
        UserError: as `measure`.
    """
    items = checked_items(run)
    # An older record has no post_stop_tokens. They are then the rest of gen_length.
    pairs = zip(items["method"], items["suite"], strict=True)
    lengths = [setting_of(run, *pair).gen_length or math.nan for pair in pairs]
    remaining = -items["content_tokens"] - items["eos_tokens"] + lengths
    items["post_stop_tokens"] = items["post_stop_tokens"].fillna(remaining)
    if not timed(run):
        items[["seconds", *UNTIL, "draw_seconds", "joules"]] = math.nan
    items["content"] = items["content_tokens"]
    items["written"] = items["content"] + items["post_stop_tokens"]
    items["generated"] = items["written"] + items["eos_tokens"]
    items["seen"] = items["written"] + items["prompt_tokens"]
    groups = by_pair(items)
    ledger = groups[[*UNTIL, *TOKENS, *PASSES]].mean()
    ledger["items"] = groups.size()
    ledger["seconds_per_item"] = groups["seconds"].mean()
    for name, share in QUANTILES.items():
        ledger[name] = groups["seconds"].quantile(share)
    for name, (numerator, denominator) in DEFINITIONS.items():
        # The mean of ratios gives short responses more weight than the ratio of sums.
        if name.endswith(MEAN_OF_RATIOS):
            ratios = items[PAIR].assign(ratio=items[numerator] / items[denominator])
            ledger[name] = by_pair(ratios)["ratio"].mean()
        else:
            both = by_pair(items.dropna(subset=[numerator, denominator]))
            ledger[name] = both[numerator].mean() / both[denominator].mean().replace(0, math.nan)
    ledger[["flop", "joules"]] = groups[["flop", "joules"]].mean()
    ledger["peak_bytes"] = groups["peak_bytes"].max()
    drawing = items.dropna(subset=["draw_seconds", "seconds"]).groupby(PAIR, observed=True)
    ledger[DRAWS] = drawing["draw_seconds"].sum() / drawing["seconds"].sum()
    other = ledger.index.get_level_values("method").isin(other_tokenizers(run))
    ledger.loc[other, list(DEFINITIONS)] = math.nan
    windows = measure_windows(run)[[*PAIR, "committed_per_window"]]
    resources = [name for name in RESOURCES if ledger[name].notna().any()]
    return by_name(ledger).merge(windows, how="left", on=PAIR)[[*LEDGER, *resources]]


# Points of accuracy: a setting that loses more counts for nothing.
MOST_LOST = 5.0
# The factor in the exponent of d3LLM's weight, for the lost share of accuracy.
PENALTY = 3.0
RESAMPLES = 1000
CURVES = ["series", "suite", "points", "tpf", "accuracy", "aup", "area", "area_low", "area_high"]


def aup(tpf: Floats, accuracy: Floats, best: float) -> float:
    """Accuracy under parallelism as d3LLM publishes it.

    Source: `get_aup` of hao-ai-lab/d3LLM, AUP_leaderboard/aup_utils.py. Settings are sorted by tpf;
    those more than MOST_LOST points less accurate than the one of lowest tpf are cut.

    Args:
        tpf: (P,), tokens per forward of a method's P settings, in any order.
        accuracy: (P,), percent.
        best: the highest accuracy of all methods, in percent.

    Returns:
        The area. NaN if the setting of highest tpf would be cut, which the published code refuses,
        or if best is 0.
    """
    order = np.argsort(tpf, kind="stable")
    tpf = tpf[order]
    accuracy = accuracy[order]
    close = accuracy >= accuracy[0] - MOST_LOST
    if not close[-1] or best == 0:
        return math.nan
    tpf = tpf[close]
    accuracy = accuracy[close]
    weighed = accuracy * np.minimum(np.exp(-PENALTY * (1 - accuracy / best)), 1.0)
    # As in the published code, the rectangle left of the first setting is not weighed.
    return float(tpf[0] * accuracy[0] + trapezoid(weighed, tpf))


def area(tpf: Floats, accuracy: Floats, reference: Floats) -> Floats:
    """The area under parallelism, without the two discontinuities of `aup`.

    The weight is 1 at the reference's accuracy, 0 at MOST_LOST points less, and linear between. So
    no setting is cut, a setting that gets slightly worse changes the area slightly, and other
    methods do not change it.

    Args:
        tpf: (..., P), tokens per forward of P settings.
        accuracy: (..., P), percent.
        reference: (...,), the reference's accuracy in percent.

    Returns:
        (...,), the areas.
    """
    order = np.argsort(tpf, axis=-1, kind="stable")
    tpf = np.take_along_axis(tpf, order, -1)
    accuracy = np.take_along_axis(accuracy, order, -1)
    weighed = accuracy * np.clip(1 - (reference[..., None] - accuracy) / MOST_LOST, 0, 1)
    return tpf[..., 0] * weighed[..., 0] + trapezoid(weighed, tpf, axis=-1)


def curves(run: Run, named: Mapping[str, str] | None = None) -> pd.DataFrame:
    """The curves of decoders that have several settings.

    Args:
        run: as read.
        named: see `series_of`.

    Returns:
        A row per series and suite with at least two scored methods and a scored LLaDA; columns are
        CURVES. Named series that join several decoders have none. tpf, accuracy: lists, a point per
        scored method in the order of the series: content tokens per forward, and percent, over the
        problems that LLaDA and all of them have. aup: see `aup`, with the highest accuracy of all
        the run's methods on the suite. area, area_low, area_high: see `area`, relative to LLaDA;
        the ends of its bootstrap interval over problems.

    Raises:
        UserError: as `measure`.
    """
    items = checked_items(run).dropna(subset=["verdict", "content_tokens", "forwards"])
    items = items.assign(
        count=1.0, method=items["method"].astype(str), suite=items["suite"].astype(str)
    )
    sums = items.groupby(["suite", "method", "problem"])[
        ["verdict", "count", "content_tokens", "forwards"]
    ].sum()
    rows = []
    for title, methods in series_of(run, named or {}).items():
        # A named series may join several decoders, which have no common curve.
        if len({run.config.methods[name].method for name in methods}) > 1:
            continue
        for suite in suite_titles(run):
            rows += _curve(sums, title, methods, suite)
    return pd.DataFrame(rows, columns=CURVES)


def _curve(sums: pd.DataFrame, title: str, methods: list[str], suite: str) -> list[list[Any]]:
    """The row of CURVES of a series on a suite, or none. sums: by suite, method and problem."""
    if suite not in sums.index.get_level_values("suite"):
        return []
    problems = sums.loc[suite]
    shares = problems.groupby("method")[["verdict", "count"]].sum()
    scored = [name for name in methods if name in shares.index]
    if REFERENCE not in shares.index or len(scored) < 2:
        return []
    compared = dict.fromkeys([REFERENCE, *scored])
    wide = problems.loc[list(compared)].unstack("method").dropna()
    if wide.empty:
        return []
    count = len(wide)
    # Problems are drawn for all methods together: their curves are of the same problems.
    resamples = np.random.default_rng(SEED).multinomial(count, np.full(count, 1 / count), RESAMPLES)
    # How often each problem counts, (1 + RESAMPLES, problems); row 0 is the problems themselves.
    weights = np.vstack([np.ones(count), resamples])
    # By column of `sums` (1 + RESAMPLES, methods).
    totals = {name: weights @ wide[name].to_numpy(float) for name in sums.columns}
    names = list(wide["count"].columns)
    columns = [names.index(name) for name in scored]
    tpf = totals["content_tokens"][:, columns] / totals["forwards"][:, columns]
    accuracy = 100 * totals["verdict"] / totals["count"]
    reference = accuracy[:, names.index(REFERENCE)]
    accuracy = accuracy[:, columns]
    areas = area(tpf, accuracy, reference)
    # d3LLM's best accuracy is of all the run's methods, each over all problems that it has.
    best = float((100 * shares["verdict"] / shares["count"]).max())
    ends = np.quantile(areas[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    numbers = (aup(tpf[0], accuracy[0], best), areas[0], *ends)
    # The last digits of exp differ between processors, and committed tables must not.
    rounded = [round(float(number), 6) for number in numbers]
    return [[title, suite, len(scored), tpf[0].tolist(), accuracy[0].tolist(), *rounded]]


def series_of(run: Run, named: Mapping[str, str]) -> dict[str, list[str]]:
    """The run's methods as series.

    Methods with the same decoder, verification and checkpoint are a series. So are the tuned
    methods of a decoder, whatever their checkpoint, and all methods with the same kind of cache.

    Args:
        run: as read.
        named: title -> pattern (fnmatch) of further series, whose methods are in no other.

    Returns:
        Title -> keys of methods. The title is the shortest label.

    Raises:
        UserError: no method matches a pattern.
    """
    methods = run.config.methods
    labels = method_labels(run)
    rest = list(methods)
    series = {}
    for title, pattern in named.items():
        series[title] = [name for name in fnmatch.filter(rest, pattern) if TUNED not in name]
        if not series[title]:
            raise UserError(
                f"--series {title}={pattern}: no method fits; the run has {', '.join(methods)}"
            )
        rest = [name for name in rest if name not in series[title]]
    kinds: dict[tuple[str, ...], list[str]] = {}
    for name in rest:
        kinds.setdefault(_kind(name, methods[name]), []).append(name)
    for kind, names in kinds.items():
        shortest = min((labels[name] for name in names), key=len)
        title = kind[0] if len(kind) == 1 else shortest.partition(" (")[0]
        if title in series:
            title = f"{title}, {methods[names[0]].role}"
        series[title] = names
    return series


def _kind(name: str, method: Method) -> tuple[str, ...]:
    """The key that the methods of a series have in common; a single text is also its title."""
    options = settings_of(method)
    verification = str(options.get("verify"))
    if TUNED in name:
        rule = f"{options.get('acceptance')} {options.get('fallback')}"
        return method.method, TUNED, verification, rule
    if options.get("cache") in ("prefix", "dual"):
        return (f"{options['cache']} cache",)
    return method.method, method.role, verification


def settings_of(method: Method) -> dict[str, Any]:
    """The options and lengths of a method by name: a value, or values by suite if they differ."""
    by_name: dict[str, dict[str, Any]] = {}
    for suite, setting in method.suites.items():
        lengths = {name: getattr(setting, name) for name in LENGTHS}
        for name, value in {**lengths, **setting.options}.items():
            by_name.setdefault(name, {})[suite] = value
    return {
        name: values if len({*map(str, values.values())}) > 1 else next(iter(values.values()))
        for name, values in by_name.items()
    }


def by_option(run: Run, option: str, default: Any) -> dict[str, dict[Any, str]]:
    """Groups of two or more methods that differ in one option alone.

    Args:
        run: as read.
        option: the name of an option or a length.
        default: the value of methods that do not set it; None to take the recorded value of each.
            Methods whose value is unknown, a list, or not the same on all suites are left out.

    Returns:
        Label of the group -> value of the option -> key of the method. The label is that of the
        method with the default value, or else of the group's first method.
    """
    groups: dict[str, dict[Any, str]] = {}
    for name, method in run.config.methods.items():
        settings = settings_of(method)
        value = settings.pop(option, default)
        if value is None:
            suites = run.meta.code.get("options", {}).get(name, {}).values()
            recorded = [options.get(option) for options in suites]
            value = recorded[0] if len({*map(str, recorded)}) == 1 else None
        # A dict: the value differs between suites.
        if value is None or isinstance(value, dict | list):
            continue
        others = json.dumps(
            [method.method, method.role, method.draft_role, settings], sort_keys=True
        )
        groups.setdefault(others, {})[value] = name
    labels = method_labels(run)
    return {
        labels[group.get(default, next(iter(group.values())))]: group
        for group in groups.values()
        if len(group) > 1
    }


def differ_in_one_option(run: Run, methods: list[str]) -> bool:
    """Whether methods have one decoder and checkpoint, and differ in at most one option."""
    rows = [run.config.methods[name] for name in methods]
    settings = pd.DataFrame([settings_of(row) for row in rows]).astype(str)
    decoders = {(row.method, row.role) for row in rows}
    return len(decoders) == 1 and int((settings.nunique(dropna=False) > 1).sum()) <= 1
