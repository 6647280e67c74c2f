"""Tokens, calls and seconds of responses: the field's measures by each definition, and accuracy
against parallelism.

A definition changes the number, not the decoder: one that counts padding has more than twice the
tokens a forward of one that does not. A series is one decoder at several settings; it has a curve,
and the area under it (AUP).
"""

import fnmatch
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.integrate import trapezoid

from harness.errors import UserError
from harness.measures.table import (
    PAIR,
    REFERENCE,
    UNTIL,
    by_name,
    checked_items,
    measure_windows,
    other_tokenizers,
    suite_titles,
    timed,
)
from harness.methods.presets import TUNED
from harness.records.schema import Method
from harness.records.store import Run
from harness.stats import LEVEL, SEED

TOKENS = ["prompt_tokens", "content_tokens", "eos_tokens", "post_stop_tokens"]
PASSES = ["forwards", "token_forwards", "cached_tokens"]
SHARES = {"seconds_median": 0.5, "seconds_90": 0.9, "seconds_99": 0.99}


@dataclass(frozen=True)
class Definition:
    """A measure: tokens counted / what they are divided by, of sums over the responses, or a mean
    of their ratios.

    counts: content (before the first EOS or end of turn), written (content and what else is no
    EOS), generated (all, padding included) or seen (prompt and written). Whose they are is in
    docs/measuring.md.
    """

    counts: str
    over: str
    mean: bool = False


DEFINITIONS: Mapping[str, Definition] = {
    "tpf_content": Definition("content", "forwards"),
    "tpf_content_mean": Definition("content", "forwards", mean=True),
    "tpf_written": Definition("written", "forwards"),
    "tpf_generated": Definition("generated", "forwards"),
    "tps_content": Definition("content", "seconds"),
    "tps_content_mean": Definition("content", "seconds", mean=True),
    "tps_written": Definition("written", "seconds"),
    "tps_generated": Definition("generated", "seconds"),
    "tps_seen": Definition("seen", "seconds"),
}
LEDGER = [
    *(*PAIR, "items", "seconds_per_item", *SHARES, *UNTIL, *TOKENS, *PASSES),
    *DEFINITIONS,
    *("positions_per_token", "committed_per_window"),
]


def token_ledger(run: Run) -> pd.DataFrame:
    """One row per method and suite that has items, in the configuration's order; columns are
    LEDGER.

    seconds_per_item, UNTIL, TOKENS and PASSES: means of a response; SHARES: percentiles of its
    seconds; DEFINITIONS: as each says. positions_per_token: token positions that went through the
    model for a token of content. NaN where the record has no such counts, in seconds where the run
    was not timed, and in what is of a token for another tokenizer. Raises UserError as `measure`
    does.
    """
    items = checked_items(run)
    lengths = {
        (name, suite): float(setting.gen_length or math.nan)
        for name, method in run.config.methods.items()
        for suite, setting in method.suites.items()
    }
    # Where an older record has no post_stop_tokens, they are what the other tokens leave of
    # gen_length.
    configured = [
        lengths.get(pair, math.nan) for pair in zip(items["method"], items["suite"], strict=True)
    ]
    left = -items["content_tokens"] - items["eos_tokens"] + configured
    items["post_stop_tokens"] = items["post_stop_tokens"].fillna(left)
    if not timed(run):
        items[["seconds", *UNTIL]] = math.nan
    items["content"] = items["content_tokens"]
    items["written"] = items["content"] + items["post_stop_tokens"]
    items["generated"] = items["written"] + items["eos_tokens"]
    items["seen"] = items["written"] + items["prompt_tokens"]
    groups = items.groupby(PAIR, observed=True)
    means = groups[
        ["seconds", *UNTIL, *TOKENS, *PASSES, "content", "written", "generated", "seen"]
    ].mean()
    ledger = means[[*UNTIL, *TOKENS, *PASSES]].assign(
        items=groups.size(), seconds_per_item=means["seconds"]
    )
    for name, share in SHARES.items():
        ledger[name] = groups["seconds"].quantile(share)
    for name, own in DEFINITIONS.items():
        if own.mean:
            ratios = items[PAIR].assign(ratio=items[own.counts] / items[own.over])
            ledger[name] = ratios.groupby(PAIR, observed=True)["ratio"].mean()
        else:
            ledger[name] = _ratio(items, own.counts, own.over)
    ledger["positions_per_token"] = _ratio(items, "token_forwards", "content")
    other = ledger.index.get_level_values("method").isin(other_tokenizers(run))
    ledger.loc[other, [*DEFINITIONS, "positions_per_token"]] = math.nan
    named = by_name(ledger)
    return named.merge(measure_windows(run)[[*PAIR, "committed_per_window"]], how="left", on=PAIR)[
        LEDGER
    ]


def _ratio(items: pd.DataFrame, above: str, below: str) -> pd.Series:
    """Total over total by PAIR, of the items that have both."""
    both = items[items[[above, below]].notna().all(axis=1)].groupby(PAIR, observed=True)
    return both[above].mean() / both[below].mean().replace(0, math.nan)


LOSS = 5.0  # points of accuracy below which a setting is worth nothing
PENALTY = 3.0  # of d3LLM's weight, for a share of accuracy that is lost
RESAMPLES = 1000
CURVES = ["series", "suite", "points", "tpf", "accuracy", "aup", "area", "area_low", "area_high"]

Values = npt.NDArray[np.float64]


def aup(tpf: Values, accuracy: Values, best: float) -> float:
    """Accuracy under parallelism as d3LLM publishes it: `get_aup` of hao-ai-lab/d3LLM,
    AUP_leaderboard/aup_utils.py.

    tpf, accuracy: (P,), tokens per forward and percent of a method's settings. best: the highest
    accuracy of all methods. Settings LOSS points below the first are cut; NaN where that is the
    last one, for which the published code stops, and where all is wrong.
    """
    order = np.argsort(tpf, kind="stable")
    tpf = tpf[order]
    accuracy = accuracy[order]
    kept = accuracy >= accuracy[0] - LOSS
    if not kept[-1] or best == 0:
        return math.nan
    tpf = tpf[kept]
    accuracy = accuracy[kept]
    weighed = accuracy * np.minimum(np.exp(-PENALTY * (1 - accuracy / best)), 1.0)
    return float(tpf[0] * accuracy[0] + trapezoid(weighed, tpf))


def area(tpf: Values, accuracy: Values, reference: Values) -> Values:
    """The area under parallelism that no rival and no cut changes: (..., P) and (...,) to (...,).

    As `aup`, with a weight that is 1 at the reference's accuracy, 0 at five points less, and even
    between; so nothing is cut, and a setting that gets slightly worse changes it slightly.
    """
    order = np.argsort(tpf, axis=-1, kind="stable")
    tpf = np.take_along_axis(tpf, order, -1)
    accuracy = np.take_along_axis(accuracy, order, -1)
    weighed = accuracy * np.clip(1 - (reference[..., None] - accuracy) / LOSS, 0, 1)
    return tpf[..., 0] * weighed[..., 0] + trapezoid(weighed, tpf, axis=-1)


def curves(run: Run, named: Mapping[str, str] | None = None) -> pd.DataFrame:
    """One row per decoder that has several settings, and suite that LLaDA is scored on; columns are
    CURVES.

    tpf, accuracy: lists, content tokens per forward pass and percent of the scored settings, over
    the problems that LLaDA and all of them have. aup: with the highest accuracy of the run's
    methods. area: relative to LLaDA, and its interval: percentiles of problems drawn anew, with all
    methods' responses. named: as of `series_of`. Raises UserError as `measure` does.
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
        if len({run.config.methods[name].method for name in methods}) > 1:
            continue
        for suite in suite_titles(run):
            rows += _curve(sums, title, methods, suite)
    return pd.DataFrame(rows, columns=CURVES)


def _curve(sums: pd.DataFrame, title: str, methods: list[str], suite: str) -> list[list[Any]]:
    if suite not in sums.index.get_level_values("suite"):
        return []
    own = sums.loc[suite]
    shares = own.groupby("method")[["verdict", "count"]].sum()
    best = float((100 * shares["verdict"] / shares["count"]).max())
    scored = [name for name in methods if name in shares.index]
    if REFERENCE not in shares.index or len(scored) < 2:
        return []
    wide = own.loc[[*dict.fromkeys([REFERENCE, *scored])]].unstack("method").dropna()
    if wide.empty:
        return []
    drawn = np.random.default_rng(SEED).multinomial(
        len(wide), np.full(len(wide), 1 / len(wide)), RESAMPLES
    )
    weights = np.vstack([np.ones(len(wide)), drawn])  # the problems themselves, then the resamples

    # Problems are drawn for all methods together: their curves are of the same problems.
    def totals(name: str, of: list[str]) -> Values:
        return weights @ wide[name][of].to_numpy(float)

    tpf = totals("content_tokens", scored) / totals("forwards", scored)
    accuracy = 100 * totals("verdict", scored) / totals("count", scored)
    reference = 100 * totals("verdict", [REFERENCE])[:, 0] / totals("count", [REFERENCE])[:, 0]
    areas = area(tpf, accuracy, reference)
    ends = np.quantile(areas[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    points = (len(scored), tpf[0].tolist(), accuracy[0].tolist())
    found = (aup(tpf[0], accuracy[0], best), areas[0], *ends)
    # exp differs between processors
    return [[title, suite, *points, *(round(float(each), 6) for each in found)]]


def series_of(run: Run, named: Mapping[str, str]) -> dict[str, list[str]]:
    """The run's methods by title, the shortest of their labels: one decoder, verification and
    checkpoint is a series.

    So is what a decoder was tuned to, with all checkpoints, and all that have one cache. named:
    title -> pattern (fnmatch); what fits it is of that series alone. Raises UserError if nothing
    fits a pattern.
    """
    methods = run.config.methods
    rest = list(methods)
    found = {}
    for title, pattern in named.items():
        found[title] = [name for name in fnmatch.filter(rest, pattern) if TUNED not in name]
        if not found[title]:
            raise UserError(
                f"--series {title}={pattern}: no method fits; the run has {', '.join(methods)}"
            )
        rest = [name for name in rest if name not in found[title]]
    kinds: dict[object, list[str]] = {}
    for name in rest:
        kinds.setdefault(_kind(name, methods[name]), []).append(name)
    for kind, names in kinds.items():
        shortest = min((methods[name].label or name for name in names), key=len)
        title = kind if isinstance(kind, str) else shortest.partition(" (")[0]
        found[f"{title}, {methods[names[0]].role}" if title in found else title] = names
    return found


def _kind(name: str, method: Method) -> object:
    """What the methods of a series have in common; a text is the series' title."""
    options = settings_of(method)
    if TUNED in name:
        return method.method, TUNED, str(options.get("verify")), str(options.get("acceptance"))
    cache = options.get("cache", "none")
    return (
        f"{cache} cache"
        if cache in ("prefix", "dual")
        else (method.method, method.role, options.get("verify"))
    )


def settings_of(method: Method) -> dict[str, Any]:
    """The options and lengths that a method has on its suites, by name; by suite where they
    differ."""
    every: dict[str, dict[str, Any]] = {}
    for suite, setting in method.suites.items():
        lengths = {"gen_length": setting.gen_length, "block_length": setting.block_length}
        for name, value in {**lengths, **setting.options}.items():
            every.setdefault(name, {})[suite] = value
    same = {
        name: next(iter(values.values()))
        for name, values in every.items()
        if len({*map(str, values.values())}) == 1
    }
    return {**every, **same}


def by_option(run: Run, option: str, default: Any) -> dict[str, dict[Any, str]]:
    """The methods that differ in this option alone, by the label of one that has the default.

    Args:
        default: the value where a method does not set it (None: as recorded among all options).

    Returns:
        Label -> value -> method.
    """
    groups: dict[str, dict[Any, str]] = {}
    for name, method in run.config.methods.items():
        settings = settings_of(method)
        value = settings.pop(option, default)
        if value is None:
            value = _recorded_value(run, name, option)
        if value is None or isinstance(value, dict | list):  # a dict: another one on every suite
            continue
        same = json.dumps([method.method, method.role, method.draft_role, settings], sort_keys=True)
        groups.setdefault(same, {})[value] = name
    labels = {name: method.label or name for name, method in run.config.methods.items()}
    several = [group for group in groups.values() if len(group) > 1]
    return {labels[group.get(default, next(iter(group.values())))]: group for group in several}


def _recorded_value(run: Run, method: str, option: str) -> Any:
    """What a method's decoder was called with on all suites; None for nothing, or several."""
    suites = run.meta.code.get("options", {}).get(method, {})
    values = [options.get(option) for options in suites.values()]
    return values[0] if values and values.count(values[0]) == len(values) else None


def differ_in_one_option(run: Run, methods: list[str]) -> bool:
    """Whether methods are one decoder with one checkpoint, and differ in one option at most."""
    rows = [run.config.methods[name] for name in methods]
    settings = [{**settings_of(row), "decoder": (row.method, row.role)} for row in rows]
    every = {name for own in settings for name in own}
    differ = [name for name in every if len({str(own.get(name)) for own in settings}) > 1]
    return len(differ) <= 1 and "decoder" not in differ
