"""Adaptive anchors: a fresh context where two-stream verification is in doubt (its law is held in test_chains.py)."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from fakes import tiny_llada
from fef_reference import LENGTH, tokens
from two_stream_reference import sequential_law

from harness.laws.oracle import enumerate_law, total_variation
from model_wrappers import Backbone, decode

two_stream = partial(tokens, verify="two-stream")


@pytest.fixture(scope="module")
def small() -> Backbone:
    """Two tokens and a mask; what it is in doubt about depends on the threshold."""
    return tiny_llada(3, vocab_size=3)


def test_thresholds_lead_from_the_law_of_two_streams_to_the_papers(small: Backbone) -> None:
    """In doubt nowhere, somewhere, everywhere: the laws differ, and the last one is the full verification's."""
    laws = [sequential_law(small, [0, 1], 3, 1.0, refresh_below=below) for below in (0.0, 0.65, 1.1)]
    run = partial(tokens, small, torch.tensor([0, 1]), gen_length=3, temperature=1.0, steps=1)
    full = enumerate_law(lambda sampler: torch.tensor(run(sampler=sampler)))
    distances = [total_variation(law, full) for law in laws]
    assert distances[0] > distances[1] > 1e-3 and distances[2] < 1e-5


def test_at_one_every_position_is_fresh_and_tokens_are_the_papers(prompt: torch.Tensor) -> None:
    backbone = tiny_llada(5)
    assert two_stream(backbone, prompt, refresh_below=1.0) == tokens(backbone, prompt)


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
