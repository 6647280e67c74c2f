"""The two-stream section of the audit: how far the target of two-stream verification is from the paper's target.

Both are taken along a reference response, at temperature 1: the paper's from the sequence with the tokens before filled
in, the other from a context that is computed anew every `anchor` positions, or in doubt, and the clean tokens since.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pandas as pd
import torch

from harness.stats import mean_interval
from harness.suites.exchanges import Example, Exchange, encode
from harness.suites.registry import suite_named
from harness.suites.splits import problems
from model_wrappers import Backbone
from model_wrappers.backbones.protocol import Ledger
from model_wrappers.decoders.fef.targets import FullVerifier, Proposal, Verifier
from model_wrappers.decoders.fef.two_stream import TwoStreamVerifier
from model_wrappers.request import Request
from model_wrappers.sampling import Sampler, in_doubt, token_probs

ANCHORS: tuple[int | None, ...] = (1, 8, 16, 24, 32, None)
FRESH_BELOW = (0.5, 0.7, 0.9)
STREAM_SUITES = ("gsm8k", "math", "humaneval", "mbpp")
NOTE = """\
TV between the target of two-stream verification and the paper's at the same position, given the same tokens before it:
mean over the positions of reference responses (dev problems), with a 95% interval over responses; and how often both
have the same most likely token. anchor: positions per context pass; whole: one pass for all, and another one where the
best token has a probability below `fresh below`. contexts: context passes a response."""


@dataclass(frozen=True)
class Contexts:
    """Where two-stream verification computes a context: every `anchor` positions (None: once), and where the best token
    has a probability below `fresh_below`."""

    anchor: int | None = None
    fresh_below: float | None = None


CONTEXTS = (*(Contexts(anchor) for anchor in ANCHORS), *(Contexts(fresh_below=c) for c in FRESH_BELOW))


@torch.inference_mode()
def probs_along(backbone: Backbone, example: Example, contexts: Contexts | None) -> tuple[torch.Tensor, int]:
    """The target's probs at each position of a response given the tokens before it, float64 (G, V), G its length.

    contexts: None for the paper's target. Returns the number of context passes, too.
    """
    prompt, response = example
    ledger, start = Ledger(backbone), len(prompt)
    x_1L = torch.tensor([prompt + [backbone.mask_id] * len(response)], device=backbone.device)
    request = Request(ledger, ledger, x_1L, start, len(response), 1.0, Sampler(0))
    verifier: Verifier = (FullVerifier if contexts is None else TwoStreamVerifier)(request, len(response))
    width = (contexts.anchor if contexts is not None else None) or len(response)
    found, first, passes = list[torch.Tensor](), 0, 0
    while first < len(response):
        tokens = response[first : first + width]
        segment = list(range(start + first, start + first + len(tokens)))
        verifier.segment(segment)
        logits_WV = verifier.verify(segment, Proposal(tokens, None, None)).logits_WV
        probs_WV = token_probs(logits_WV, 1.0, exclude=backbone.mask_id)
        if contexts is not None:
            doubtful_W = in_doubt(probs_WV.amax(1), contexts.fresh_below, fresh=True)
            probs_WV = probs_WV[: int((~doubtful_W).cumprod(0).sum())]
        count = len(probs_WV)
        request.commit(segment[:count], tokens[:count], None, "drawn")
        verifier.advance(len(segment), 0)  # whatever comes next has another context
        found.append(probs_WV)
        first, passes = first + count, passes + 1
    return torch.cat(found), passes


def paper_targets(backbone: Backbone, examples: Sequence[Example]) -> list[torch.Tensor]:
    """Of each example the paper's target along its response, (G, V)."""
    return [probs_along(backbone, example, None)[0] for example in examples]


def distances(
    backbone: Backbone, examples: Sequence[Example], targets: Sequence[torch.Tensor], contexts: Contexts
) -> pd.DataFrame:
    """Per example the mean total variation between the two targets, how often their argmax agree, and contexts.

    targets: what paper_targets gives.
    """
    rows = []
    for example, target in zip(examples, targets, strict=True):
        other, passes = probs_along(backbone, example, contexts)
        apart = (target - other).abs().sum(1) / 2
        agree = float((target.argmax(1) == other.argmax(1)).double().mean())
        rows.append({"tv": float(apart.mean()), "agree": agree, "positions": len(apart), "contexts": passes})
    return pd.DataFrame(rows)


def audit_streams(
    backbones: dict[str, Backbone], count: int, progress: Callable[[list[tuple[str, Contexts]]], Any] = iter
) -> pd.DataFrame:
    """A row per model and choice of contexts: positions, contexts a response, mean TV with a 95% bootstrap interval
    over responses, argmax agreement, on `count` dev problems of every suite."""
    rows = []
    examples: dict[str, list[Example]] = {name: [] for name in backbones}
    for name, suite in product(backbones, STREAM_SUITES):
        exchanges = [Exchange(problem.question, problem.response) for problem in problems(suite, "dev", count)]
        examples[name] += encode(backbones[name], exchanges, suite_named(suite).generated.length)
    targets: dict[str, list[torch.Tensor]] = {}
    for name, contexts in progress([*product(backbones, CONTEXTS)]):
        if name not in targets:
            targets[name] = paper_targets(backbones[name], examples[name])
        found = distances(backbones[name], examples[name], targets[name], contexts)
        low, high = mean_interval(found["tv"].to_numpy())
        rows.append(
            {
                "model": name,
                "anchor": "whole" if contexts.anchor is None else str(contexts.anchor),
                "fresh below": math.nan if contexts.fresh_below is None else contexts.fresh_below,
                "contexts": found["contexts"].mean(),
                "places": int(found["positions"].sum()),  # the column's name in committed records
                "TV": found["tv"].mean(),
                "TV low": low,
                "TV high": high,
                "argmax agreement %": 100 * found["agree"].mean(),
            }
        )
    return pd.DataFrame(rows)
