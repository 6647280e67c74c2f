"""FeF under the uniform kernel: "unresolved" means drawn anew, and no mask is ever seen or left."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from enumerated import enumerate_law
from fakes import RandomConditionals, Recorder

from harness.laws.oracle import Law, total_variation
from model_wrappers import decode
from model_wrappers.sampling import token_probs

REAL, LENGTH = 2, 3
PROMPT = torch.tensor([1])


def uniform_law(**options: Any) -> Law:
    """The decoder's exact law over responses of LENGTH tokens, at temperature 1."""
    backbone = RandomConditionals(REAL, seed=1)
    run = partial(decode, backbone, PROMPT, "fef", gen_length=LENGTH, temperature=1.0, kernel="uniform", **options)
    return enumerate_law(lambda sampler: run(sampler=sampler).tokens)


def one_step_law() -> Law:
    """Noise drawn uniformly, then the chain product of the target's probs: each position given those before it."""
    backbone = RandomConditionals(REAL, seed=1)
    outcome: dict[tuple[int, ...], dict[tuple[int, ...], float]] = {(): dict.fromkeys(_words(), REAL**-LENGTH)}
    for position in range(LENGTH):
        grown: dict[tuple[int, ...], dict[tuple[int, ...], float]] = {}
        for done, noises in outcome.items():
            for noise, probability in noises.items():
                row = torch.tensor([[*PROMPT.tolist(), *done, *noise[position:]]])
                target_V = token_probs(backbone.logits(row)[0, 1 + position][None], 1.0, exclude=backbone.mask_id)[
                    0
                ].tolist()
                for token in range(REAL):
                    grown.setdefault((*done, token), {})[noise] = probability * target_V[token]
        outcome = grown
    return {tokens: sum(noises.values()) for tokens, noises in outcome.items()}


def _words() -> list[tuple[int, ...]]:
    return [tuple(word) for word in torch.cartesian_prod(*[torch.arange(REAL)] * LENGTH).tolist()]


@pytest.mark.parametrize("options", [{"speculative": False}, {"window": 2}, {"window": 3}])
def test_one_step_is_the_chain_product_given_noise(options: dict[str, Any]) -> None:
    assert total_variation(uniform_law(steps=1, **options), one_step_law()) < 1e-12


def test_two_steps_have_one_law_for_every_window_and_draft() -> None:
    expected = uniform_law(steps=2, speculative=False)
    assert total_variation(uniform_law(steps=2, window=2), expected) < 1e-12
    assert total_variation(uniform_law(steps=2, window=1, draft=RandomConditionals(REAL, seed=5)), expected) < 1e-12


def test_no_mask_is_seen_or_left() -> None:
    backbone = Recorder(RandomConditionals(REAL, seed=1))
    out = decode(backbone, PROMPT, "fef", gen_length=8, temperature=1.0, kernel="uniform", steps=3, window=4)
    assert not (out.tokens == backbone.mask_id).any()
    assert not any((ids_BL == backbone.mask_id).any() for ids_BL in backbone.inputs)


def test_half_the_positions_are_drawn_anew_and_resolved_again() -> None:
    trace = decode(RandomConditionals(REAL), PROMPT, "fef", gen_length=8, kernel="uniform", speculative=False).trace
    assert trace.forwards == 8 + 4
