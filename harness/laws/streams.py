"""The two-stream section of the audit: how far the target of two-stream verification is from the paper's target.

Both are taken at every position of a reference response, given the tokens before it. The paper's comes from the
sequence with these tokens filled in. The other comes from a context that is computed anew every `anchor` positions, and
the clean tokens since. At temperature 1, the mask excluded, in the first diffusion step: all later positions are
masked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats

from harness.laws.exact import LEVEL
from harness.suites.exchanges import Exchange
from harness.suites.splits import generator_of, problems
from harness.training.responses import Example, encode
from model_wrappers import Backbone
from model_wrappers.backbones.protocol import Ledger
from model_wrappers.request import Request
from model_wrappers.sampling import Sampler, token_probs
from model_wrappers.verification import FullVerifier, Proposal, TwoStreamVerifier

ANCHORS: tuple[int | None, ...] = (1, 8, 16, 24, 32, None)
STREAM_SUITES = ("gsm8k", "math", "humaneval", "mbpp")


def stream_examples(backbone: Backbone, count: int) -> list[Example]:
    """`count` generated dev problems of every suite with their reference responses, as ids."""
    examples = []
    for suite in STREAM_SUITES:
        exchanges = [Exchange(problem.question, problem.response) for problem in problems(suite, "dev", count)]
        examples += encode(backbone, exchanges, generator_of(suite).length)
    return examples


@torch.inference_mode()
def probs_along(backbone: Backbone, example: Example, anchor: int | None, full: bool) -> torch.Tensor:
    """The target's probs at each position of a response given the tokens before it, float64 (G, V), G its length.

    full: the paper's target; else that of two-stream verification with a context pass every `anchor` positions (None:
    one).
    """
    prompt, response = example
    ledger, start = Ledger(backbone), len(prompt)
    x_1L = torch.tensor([prompt + [backbone.mask_id] * len(response)], device=backbone.device)
    request = Request(ledger, ledger, x_1L, start, len(response), 1.0, Sampler(0))
    verifier = (FullVerifier if full else TwoStreamVerifier)(request, len(response))
    width = len(response) if full or anchor is None else anchor
    logits = []
    for first in range(0, len(response), width):
        tokens = response[first : first + width]
        segment = list(range(start + first, start + first + len(tokens)))
        verifier.begin(segment)
        logits.append(verifier.verify(segment, Proposal(tokens, None, None), want_drafts=False).logits_WV)
        request.commit(segment, tokens, None, "drawn")
    return token_probs(torch.cat(logits), 1.0, exclude=backbone.mask_id)


def distances(backbone: Backbone, examples: Sequence[Example], anchor: int | None) -> pd.DataFrame:
    """Per example the mean total variation between the two targets, and how often their argmax agree."""
    rows = []
    for example in examples:
        target, other = (probs_along(backbone, example, anchor, full) for full in (True, False))
        apart = (target - other).abs().sum(1) / 2
        agree = target.argmax(1) == other.argmax(1)
        rows.append({"tv": float(apart.mean()), "agree": float(agree.double().mean()), "positions": len(apart)})
    return pd.DataFrame(rows)


def audit_streams(
    backbones: dict[str, Backbone],
    count: int,
    anchors: Sequence[int | None] = ANCHORS,
    progress: Callable[[list[tuple[str, int | None]]], Any] = iter,
) -> pd.DataFrame:
    """One row per model and anchor: positions, mean TV with a 95% bootstrap interval over responses, argmax agreement.

    count: dev problems of every suite.
    """
    rows = []
    for name, anchor in progress([(name, anchor) for name in backbones for anchor in anchors]):
        found = distances(backbones[name], stream_examples(backbones[name], count), anchor)
        low, high = _interval(found["tv"].to_numpy())
        rows.append(
            {
                "model": name,
                "anchor": "whole" if anchor is None else str(anchor),
                "places": int(found["positions"].sum()),  # the column's name in committed records
                "TV": found["tv"].mean(),
                "TV low": low,
                "TV high": high,
                "argmax agreement %": 100 * found["agree"].mean(),
            }
        )
    return pd.DataFrame(rows)


def _interval(values: Any) -> tuple[float, float]:
    if len(values) < 2:
        return float(values[0]), float(values[0])
    found = stats.bootstrap((values,), np.mean, confidence_level=1 - LEVEL, method="percentile", rng=0)
    return float(found.confidence_interval.low), float(found.confidence_interval.high)
