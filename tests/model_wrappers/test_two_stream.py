"""Two-stream verification: costs, fresh contexts, orders, refusals.

Its targets are held in test_two_stream_families.py, its laws in test_chains.py.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from enumerated import enumerate_law
from fakes import RandomConditionals, request_for, tiny_llada
from fef_reference import LENGTH, tokens
from trainers import logits_of
from two_stream_reference import sequential_law

from harness.laws.oracle import total_variation
from harness.training.objectives import corrupt
from harness.training.two_stream import two_stream_rows
from model_wrappers import Backbone, decode
from model_wrappers.decoders.fef.targets import Proposal
from model_wrappers.decoders.fef.two_stream import TwoStreamVerifier, by_confidence

two_stream = partial(tokens, verify="two-stream")


def test_the_anchor_and_the_verification_change_the_tokens(prompt: torch.Tensor) -> None:
    backbone = tiny_llada(0)
    responses = [two_stream(backbone, prompt, anchor=anchor) for anchor in (None, 4)]
    responses.append(tokens(backbone, prompt))
    assert len({tuple(response) for response in responses}) == 3


# One verification


def test_training_and_decoding_have_the_same_targets(tiny: Backbone) -> None:
    clean_BL = torch.randint(0, 38, (1, 12), generator=torch.Generator().manual_seed(4))
    response_BL = torch.arange(12)[None] >= 3
    corrupted_BL, _ = corrupt(
        clean_BL, response_BL, torch.tensor([0.7]), tiny.mask_id, torch.Generator().manual_seed(1)
    )
    segment_BL = corrupted_BL != clean_BL
    rows = two_stream_rows(clean_BL, segment_BL, tiny.mask_id)
    trained = logits_of(tiny.model, rows)[0]
    segment = segment_BL[0].nonzero()[:, 0].tolist()
    verifier = TwoStreamVerifier(request_for(tiny, corrupted_BL[0].tolist()), window=8)
    verifier.begin(segment)
    decoded_WV = verifier.verify(segment, Proposal(clean_BL[0, segment].tolist(), None, None)).logits_WV
    torch.testing.assert_close(trained[len(segment) :], decoded_WV, atol=1e-4, rtol=1e-4)


# Costs and refusals


@pytest.mark.parametrize("anchor", [None, 4])
def test_cost_is_a_context_a_segment_and_two_tokens_a_draft(prompt: torch.Tensor, anchor: int | None) -> None:
    run = partial(decode, tiny_llada(), prompt, gen_length=LENGTH, verify="two-stream", steps=1, anchor=anchor)
    trace = run(window=4).trace
    contexts = 1 if anchor is None else LENGTH // anchor
    assert trace.rows == trace.forwards == contexts + len(trace.windows) + trace.draft_forwards
    spent = trace.token_forwards - contexts * (len(prompt) + LENGTH) - trace.draft_token_forwards
    # The clean token of a position is computed once in the window and, where it was corrected, once more.
    assert spent <= sum(2 * window.proposed for window in trace.windows)


def test_windows_do_not_cross_the_grid(prompt: torch.Tensor) -> None:
    windows = decode(tiny_llada(), prompt, gen_length=LENGTH, verify="two-stream", anchor=4, steps=1).trace.windows
    assert all(window.start // 4 == (window.start + window.proposed - 1) // 4 for window in windows)


def test_a_backbone_without_cached_attention_is_refused() -> None:
    with pytest.raises(ValueError, match="cached attention"):
        decode(RandomConditionals(), torch.tensor([0]), gen_length=4, verify="two-stream")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"anchor": 4}, "anchor=4 needs verify='two-stream'"),
        ({"anchor": 0, "verify": "two-stream"}, "anchor=0"),
        ({"reuse_drafts": True, "verify": "two-stream"}, "reuse_drafts needs verify='full'"),
        ({"verify": "three-stream"}, "'full' or 'two-stream'"),
        ({"refresh_below": 0.7}, "refresh_below=0.7 needs verify='two-stream', not 'full'"),
        ({"order": "confidence"}, "order='confidence' needs verify='two-stream', not 'full'"),
    ],
)
def test_bad_options_are_refused(prompt: torch.Tensor, options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        decode(tiny_llada(), prompt, gen_length=4, **options)


def test_cached_context_gives_the_plain_logits_in_half_precision(prompt: torch.Tensor) -> None:
    backbone = tiny_llada(2)
    backbone.model.to(torch.bfloat16)
    positions = torch.arange(len(prompt))
    logits, cache = backbone.extend(prompt[None], positions, positions)
    assert torch.equal(logits, backbone.logits(prompt[None])) and logits.dtype == torch.bfloat16
    again, _ = backbone.extend(prompt[None, :2], positions[:2], positions[:2], cache)
    assert again.dtype == torch.bfloat16


# A fresh context where verification is in doubt


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


# From the most confident position to the least


def test_the_likeliest_comes_first_and_ties_from_left_to_right() -> None:
    context = {4: torch.tensor([1.0, 0, 9]), 7: torch.tensor([0.0, 5, 9]), 9: torch.tensor([0.0, 1, 9])}
    assert by_confidence(context, never=[2]) == [7, 4, 9]


def test_a_response_ends_at_an_eos_that_nothing_unresolved_precedes(prompt: torch.Tensor) -> None:
    """Tokens up to the first EOS are those without stopping, whichever token is EOS."""
    backbone = tiny_llada(0)
    run = partial(two_stream, backbone, prompt, order="confidence", gen_length=16, steps=1, window=2)
    free, stopped_early = run(), 0
    for place, token in enumerate(free):
        backbone.eos_id = token
        stopped, end = run(stop_at_eos=True), free.index(token)
        assert stopped[: end + 1] == free[: end + 1] and end <= place
        stopped_early += stopped != free
    assert stopped_early
