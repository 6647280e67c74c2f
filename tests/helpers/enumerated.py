"""The exact law of a decoder, by walking every branch of its randomness."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

from harness.audit.oracle import Law, branches


def enumerate_law(run: Callable[[Any], torch.Tensor], quota: int | None = None) -> Law:
    """The exact law of run(sampler), a decoder's tokens, over every branch of its randomness."""
    outcome: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for tokens, probability in branches(run, quota):
        outcome[tuple(tokens.tolist())] += probability
    return dict(outcome)
