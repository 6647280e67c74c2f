"""Adaptive anchors: a fresh context where two-stream verification is in doubt, and still one chain distribution."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from fakes import tiny_llada
from fef_reference import LENGTH, tokens
from two_stream_reference import sequential_law

from harness.laws.oracle import enumerate_law, total_variation
from model_wrappers import Backbone, decode

two_stream = partial(tokens, verify="two-stream")
SAVINGS = [dict(zip(("skip_root_row", "adaptive_window"), on, strict=True)) for on in product((False, True), repeat=2)]
OTHER = tiny_llada(50)


@pytest.fixture(scope="module")
def small() -> Backbone:
    """Two tokens and a mask; what it is in doubt about depends on the threshold."""
    return tiny_llada(3, vocab_size=3, std=0.3)


@pytest.mark.parametrize("refresh_below", [0.2, 0.3])
@pytest.mark.parametrize("anchor", [None, 4])
@pytest.mark.parametrize("steps", [1, 2])
def test_greedy_tokens_are_those_of_sequential_decoding(
    prompt: torch.Tensor, steps: int, anchor: int | None, refresh_below: float
) -> None:
    backbone = tiny_llada(3)
    (expected,) = sequential_law(backbone, prompt.tolist(), 8, anchor, 0.0, steps, refresh_below)
    options: dict[str, Any] = {"gen_length": 8, "anchor": anchor, "steps": steps, "window": 4}
    assert two_stream(backbone, prompt, **options, refresh_below=refresh_below) == list(expected)


@pytest.mark.parametrize("savings", SAVINGS)
@pytest.mark.parametrize("refresh_below", [0.15, 0.25])
def test_greedy_tokens_are_the_same_for_every_window_draft_and_saving(
    prompt: torch.Tensor, refresh_below: float, savings: dict[str, bool]
) -> None:
    run = partial(two_stream, tiny_llada(0), prompt, refresh_below=refresh_below)
    expected = run(speculative=False)
    variants: list[dict[str, Any]] = [{"window": window} for window in (1, 4, 5, 16)]
    variants.append({"draft": OTHER, "window": 4})
    assert [run(**variant, **savings) for variant in variants] == [expected] * len(variants)


@pytest.mark.parametrize("refresh_below", [0.65, 0.8])
@pytest.mark.parametrize(
    "variant",
    [
        {"speculative": False},
        {"window": 1},
        {"window": 2},
        {"window": 4},
        {"window": 2, "draft": tiny_llada(2, vocab_size=3, std=0.3)},
        {"window": 4, "skip_root_row": True, "adaptive_window": True},
    ],
)
def test_the_law_is_that_of_sequential_decoding(small: Backbone, variant: dict[str, Any], refresh_below: float) -> None:
    options: dict[str, Any] = {"gen_length": 3, "temperature": 1.0, "steps": 1, "refresh_below": refresh_below}
    run = partial(two_stream, small, torch.tensor([0, 1]), **options)
    measured = enumerate_law(lambda sampler: torch.tensor(run(sampler=sampler, **variant)))
    # The same numbers in batches of other shapes differ in the last bits of float32.
    assert total_variation(measured, sequential_law(small, [0, 1], 3, None, 1.0, 1, refresh_below)) < 1e-5


def test_thresholds_lead_from_the_law_of_two_streams_to_the_papers(small: Backbone) -> None:
    """In doubt nowhere, somewhere, everywhere: the laws differ, and the last one is the full verification's."""
    laws = [sequential_law(small, [0, 1], 3, None, 1.0, 1, below) for below in (0.0, 0.65, 1.1)]
    run = partial(tokens, small, torch.tensor([0, 1]), gen_length=3, temperature=1.0, steps=1)
    full = enumerate_law(lambda sampler: torch.tensor(run(sampler=sampler)))
    distances = [total_variation(law, full) for law in laws]
    assert distances[0] > distances[1] > 1e-3 and distances[2] < 1e-5


def test_a_broken_residual_shows(small: Backbone, broken_residual: None) -> None:
    options: dict[str, Any] = {"gen_length": 3, "temperature": 1.0, "steps": 1, "refresh_below": 0.65}
    run = partial(two_stream, small, torch.tensor([0, 1]), window=2, draft=tiny_llada(2, vocab_size=3, std=0.3))
    measured = enumerate_law(lambda sampler: torch.tensor(run(sampler=sampler, **options)))
    assert total_variation(measured, sequential_law(small, [0, 1], 3, None, 1.0, 1, 0.65)) > 1e-3


@pytest.mark.parametrize("savings", SAVINGS)
def test_at_one_every_position_is_fresh_and_tokens_are_the_papers(
    prompt: torch.Tensor, savings: dict[str, bool]
) -> None:
    backbone = tiny_llada(5)
    assert two_stream(backbone, prompt, refresh_below=1.0, **savings) == tokens(backbone, prompt)


def test_windows_are_what_was_up_for_acceptance(prompt: torch.Tensor) -> None:
    run = partial(decode, tiny_llada(0), prompt, gen_length=LENGTH, verify="two-stream", steps=1, window=4)
    trace = run(refresh_below=0.25).trace
    assert sum(window.committed for window in trace.windows) == LENGTH
    assert all(window.committed == min(window.accepted + 1, window.proposed) for window in trace.windows)


def test_a_fresh_context_costs_a_query_that_doubts_and_a_context_pass(prompt: torch.Tensor) -> None:
    """By its draft probs nothing after a doubtful position is reached: the query that finds the doubt comes alone."""
    run = partial(decode, tiny_llada(0), prompt, gen_length=LENGTH, verify="two-stream", steps=1, refresh_below=1.0)
    trace = run(skip_root_row=True, adaptive_window=True).trace
    assert trace.forwards == LENGTH + (LENGTH - 1)
    assert trace.token_forwards == LENGTH * (len(prompt) + LENGTH) + 2 * (LENGTH - 1)


def test_it_needs_two_streams(prompt: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"refresh_below=0.7 needs verify='two-stream', not 'full'"):
        decode(tiny_llada(), prompt, gen_length=4, refresh_below=0.7)
