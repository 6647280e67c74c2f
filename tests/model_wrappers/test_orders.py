"""Two-stream verification from the most confident position to the least: an order fixed before the draws is one law."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from fakes import tiny_llada
from fef_reference import tokens
from two_stream_reference import sequential_law

from harness.laws.oracle import enumerate_law, total_variation
from model_wrappers import Backbone, decode
from model_wrappers.decoders.fef import by_confidence

two_stream = partial(tokens, verify="two-stream", order="confidence")
SAVINGS = [dict(zip(("skip_root_row", "adaptive_window"), on, strict=True)) for on in product((False, True), repeat=2)]


@pytest.fixture(scope="module")
def small() -> Backbone:
    """Two tokens and a mask."""
    return tiny_llada(3, vocab_size=3, std=0.3)


@pytest.mark.parametrize("refresh_below", [0.0, 0.25])
@pytest.mark.parametrize("anchor", [None, 3])
@pytest.mark.parametrize("steps", [1, 2])
def test_greedy_tokens_are_those_of_sequential_decoding(
    prompt: torch.Tensor, steps: int, anchor: int | None, refresh_below: float
) -> None:
    backbone = tiny_llada(3)
    (expected,) = sequential_law(backbone, prompt.tolist(), 8, anchor, 0.0, steps, refresh_below, by_confidence=True)
    options: dict[str, Any] = {"gen_length": 8, "anchor": anchor, "steps": steps, "window": 4}
    assert two_stream(backbone, prompt, **options, refresh_below=refresh_below) == list(expected)


@pytest.mark.parametrize("savings", SAVINGS)
@pytest.mark.parametrize("options", [{}, {"anchor": 5}, {"refresh_below": 0.25}, {"block_length": 8}])
def test_greedy_tokens_are_the_same_for_every_window_draft_and_saving(
    prompt: torch.Tensor, options: dict[str, Any], savings: dict[str, bool]
) -> None:
    run = partial(two_stream, tiny_llada(0), prompt, **options)
    expected = run(speculative=False)
    variants: list[dict[str, Any]] = [{"window": window} for window in (1, 4, 16)]
    variants.append({"draft": tiny_llada(50), "window": 4})
    assert [run(**variant, **savings) for variant in variants] == [expected] * len(variants)


@pytest.mark.parametrize("refresh_below", [0.0, 0.65])
@pytest.mark.parametrize(
    "variant",
    [
        {"speculative": False},
        {"window": 2},
        {"window": 2, "draft": tiny_llada(2, vocab_size=3, std=0.3)},
        {"window": 4, "skip_root_row": True, "adaptive_window": True},
    ],
)
def test_the_law_is_that_of_sequential_decoding(small: Backbone, variant: dict[str, Any], refresh_below: float) -> None:
    options: dict[str, Any] = {"gen_length": 3, "temperature": 1.0, "steps": 1, "refresh_below": refresh_below}
    run = partial(two_stream, small, torch.tensor([0, 1]), **options)
    measured = enumerate_law(lambda sampler: torch.tensor(run(sampler=sampler, **variant)))
    expected = sequential_law(small, [0, 1], 3, None, 1.0, 1, refresh_below, by_confidence=True)
    # The same numbers in batches of other shapes differ in the last bits of float32.
    assert total_variation(measured, expected) < 1e-5


def test_another_order_is_another_law(small: Backbone) -> None:
    laws = [sequential_law(small, [0, 1], 3, None, 1.0, by_confidence=by) for by in (False, True)]
    assert total_variation(*laws) > 1e-3


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
