"""KLASS: what is sure and stable is committed, else the most confident position."""

from __future__ import annotations

import pytest
import torch
from fakes import FixedLogits, tiny_llada

from model_wrappers import decode
from model_wrappers.backbones.protocol import BackboneLike

# Token 1 with confidence 0.97, 0.96, .., at positions 1 to 5, token 0 at position 6; the mask, id 2, is impossible.
SURE_LV = torch.tensor([[1 - p, p, 0.0] for p in (0.5, 0.97, 0.96, 0.95, 0.94, 0.93, 0.2)]).log()


def reference(backbone: BackboneLike, prompt: list[int], length: int, block: int, c: float, d: float, h: int) -> list:
    """KLASS with every distribution of every position kept, as the paper's Algorithm 1 says it."""
    row, start = [*prompt, *[backbone.mask_id] * length], len(prompt)
    before = torch.zeros(len(row), backbone.vocab_size, dtype=torch.float64)
    history = torch.full((len(row), h), torch.inf, dtype=torch.float64)
    for first in range(start, start + length, block):
        for step in range(block):
            masked = [at for at in range(first, first + block) if row[at] == backbone.mask_id]
            if not masked:
                break
            probs = torch.softmax(backbone.logits(torch.tensor([row]))[0].double(), -1)
            divergence = (probs * ((probs + 1e-12).log() - (before + 1e-12).log())).sum(-1)
            history, before = torch.cat([history[:, 1:], divergence[:, None]], 1), probs
            confidence, token = probs.max(-1)
            ready = [at for at in masked if bool((history[at] < d).all()) and float(confidence[at]) > c]
            if step < h - 1 or not ready:
                ready = [max(masked, key=lambda at: float(confidence[at]))]
            for at in ready:
                row[at] = int(token[at])
    return row[start:]


@pytest.mark.parametrize("history", [1, 2, 3])
@pytest.mark.parametrize("block_length", [4, 8, 16])
@pytest.mark.parametrize("seed", range(3))
def test_tokens_are_those_of_the_algorithm(prompt: torch.Tensor, seed: int, block_length: int, history: int) -> None:
    backbone = tiny_llada(seed, std=0.1)  # flat enough for small divergences
    options = {"conf_threshold": 0.03, "kl_threshold": 0.02, "history": history}
    out = decode(backbone, prompt, "klass", gen_length=16, block_length=block_length, **options)
    assert out.tokens.tolist() == reference(backbone, prompt.tolist(), 16, block_length, 0.03, 0.02, history)


@pytest.mark.parametrize(("history", "forwards"), [(1, 3), (2, 4), (3, 5)])
def test_nothing_is_stable_before_the_history_is_full(history: int, forwards: int) -> None:
    """One position a step so long, then all that is sure at once, then the last."""
    out = decode(FixedLogits(SURE_LV), torch.tensor([0]), "klass", gen_length=6, history=history)
    assert out.trace.forwards == forwards and out.tokens.tolist() == [1, 1, 1, 1, 1, 0]
