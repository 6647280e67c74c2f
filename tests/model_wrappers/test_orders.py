"""Two-stream verification from the most confident position to the least (its law is held in test_chains.py)."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from fakes import tiny_llada
from fef_reference import tokens

from model_wrappers import decode
from model_wrappers.decoders.fef.two_stream import by_confidence

two_stream = partial(tokens, verify="two-stream", order="confidence")


def test_the_likeliest_comes_first_and_ties_from_left_to_right() -> None:
    context = {4: torch.tensor([1.0, 0, 9]), 7: torch.tensor([0.0, 5, 9]), 9: torch.tensor([0.0, 1, 9])}
    assert by_confidence(context, never=[2]) == [7, 4, 9]


def test_a_response_ends_at_an_eos_that_nothing_unresolved_precedes(prompt: torch.Tensor) -> None:
    """Tokens up to the first EOS are those without stopping, whichever token is EOS."""
    backbone = tiny_llada(0)
    run = partial(two_stream, backbone, prompt, gen_length=16, steps=1, window=2)
    free, stopped_early = run(), 0
    for place, token in enumerate(free):
        backbone.eos_id = token
        stopped, end = run(stop_at_eos=True), free.index(token)
        assert stopped[: end + 1] == free[: end + 1] and end <= place
        stopped_early += stopped != free
    assert stopped_early


def test_it_needs_two_streams(prompt: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"order='confidence' needs verify='two-stream', not 'full'"):
        decode(tiny_llada(), prompt, gen_length=4, order="confidence")
