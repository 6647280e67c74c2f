"""Tokens, calls and seconds of responses, and the measures that papers and codes make of them, by each definition.

A definition changes the number, not the decoder: one that counts padding has more than twice the tokens a forward of
one that does not.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from harness.measures.table import PAIR, by_name, checked_items, measure_windows, timed
from harness.records.store import Run

TOKENS = ["prompt_tokens", "content_tokens", "eos_tokens", "post_stop_tokens"]
PASSES = ["forwards", "token_forwards", "cached_tokens"]
UNTIL = ["first_block_seconds", "content_seconds"]
SHARES = {"seconds_median": 0.5, "seconds_90": 0.9, "seconds_99": 0.99}


@dataclass(frozen=True)
class Definition:
    """A measure: tokens counted / what they are divided by, of sums over the responses, or a mean of their ratios.

    counts: content (before the first EOS or end of turn), written (content and what else is no EOS), generated (all,
    padding included) or seen (prompt and written). source: whose it is.
    """

    counts: str
    over: str
    source: str
    mean: bool = False


DEFINITIONS: Mapping[str, Definition] = {
    "tpf_content": Definition("content", "forwards", "d3LLM"),
    "tpf_content_mean": Definition("content", "forwards", "Diffulex", mean=True),
    "tpf_written": Definition("written", "forwards", "transformers"),
    "tpf_generated": Definition("generated", "forwards", "dInfer on LLaDA"),
    "tps_content": Definition("content", "seconds", "Fast-dLLM v1, d3LLM"),
    "tps_content_mean": Definition("content", "seconds", "Diffulex", mean=True),
    "tps_written": Definition("written", "seconds", "dInfer as meant"),
    "tps_generated": Definition("generated", "seconds", "dInfer on LLaDA, Fast-dLLM v2"),
    "tps_seen": Definition("seen", "seconds", "Fast-dLLM v1 on HumanEval"),
}
LEDGER = [
    *(*PAIR, "items", "seconds_per_item", *SHARES, *UNTIL, *TOKENS, *PASSES),
    *DEFINITIONS,
    *("positions_per_token", "committed_per_window"),
]


def token_ledger(run: Run) -> pd.DataFrame:
    """One row per method and suite that has items, in the configuration's order; columns are LEDGER.

    seconds_per_item, UNTIL, TOKENS and PASSES: means a response; SHARES: percentiles of its seconds. post_stop_tokens,
    in an older record without it, is what the configuration's gen_length leaves beside content and EOS. DEFINITIONS: as
    each says. positions_per_token: token positions that went through the model for a token of content. NaN where the
    record has no such counts; whatever needs seconds too where the run was not timed. Raises UserError if there are no
    items or they are damaged.
    """
    items = checked_items(run)
    left = -items["content_tokens"] - items["eos_tokens"] + _gen_lengths(run, items)
    items["post_stop_tokens"] = items["post_stop_tokens"].fillna(left)
    if not timed(run):
        items[["seconds", *UNTIL]] = math.nan
    items["content"] = items["content_tokens"]
    items["written"] = items["content"] + items["post_stop_tokens"]
    items["generated"] = items["written"] + items["eos_tokens"]
    items["seen"] = items["written"] + items["prompt_tokens"]
    groups = items.groupby(PAIR, observed=True)
    means = groups[["seconds", *UNTIL, *TOKENS, *PASSES, "content", "written", "generated", "seen"]].mean()
    ledger = means[[*UNTIL, *TOKENS, *PASSES]].assign(items=groups.size(), seconds_per_item=means["seconds"])
    for name, share in SHARES.items():
        ledger[name] = groups["seconds"].quantile(share)
    for name, own in DEFINITIONS.items():
        if own.mean:
            ratios = items[PAIR].assign(ratio=items[own.counts] / items[own.over])
            ledger[name] = ratios.groupby(PAIR, observed=True)["ratio"].mean()
        else:
            ledger[name] = means[own.counts] / means[own.over]
    ledger["positions_per_token"] = means["token_forwards"] / means["content"].replace(0, math.nan)
    named = by_name(ledger)
    return named.merge(measure_windows(run)[[*PAIR, "committed_per_window"]], how="left", on=PAIR)[LEDGER]


def _gen_lengths(run: Run, items: pd.DataFrame) -> list[float]:
    """The configured length of every item's response; NaN where the configuration names none."""
    lengths = {
        (name, suite): float(setting.gen_length or math.nan)
        for name, method in run.config.methods.items()
        for suite, setting in method.suites.items()
    }
    return [lengths.get(pair, math.nan) for pair in zip(items["method"], items["suite"], strict=True)]
