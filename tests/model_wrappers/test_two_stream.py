"""Two-stream verification: its targets on every family, costs, fresh contexts, orders. Its laws:
test_chains.py."""

from functools import partial

import pytest
import torch
from enumerated import enumerate_law
from fakes import request_for, tiny_llada
from families import NAMES, SHIFTED, tiny
from fef_reference import LENGTH, tokens
from two_stream_reference import query_logits, sequential_law

from harness.audit.oracle import total_variation
from model_wrappers import Backbone, decode
from model_wrappers.decoders.fef import FeFOptions
from model_wrappers.decoders.fef.targets import Proposal
from model_wrappers.decoders.fef.two_stream import TwoStreamVerifier, by_confidence

two_stream = partial(tokens, verify="two-stream")


# Costs
@pytest.mark.parametrize("anchor", [None, 4])
def test_cost_is_a_context_a_segment_and_two_tokens_a_draft(
    prompt: torch.Tensor, anchor: int | None
) -> None:
    run = partial(
        decode, tiny_llada(), prompt, gen_length=LENGTH, verify="two-stream", steps=1, anchor=anchor
    )
    trace = run(window=4).trace
    contexts = 1 if anchor is None else LENGTH // anchor
    assert trace.rows == trace.forwards == contexts + len(trace.windows) + trace.draft_forwards
    spent = trace.token_forwards - contexts * (len(prompt) + LENGTH) - trace.draft_token_forwards
    # The clean token of a position is computed once in the window and, where it was corrected, once
    # more.
    assert spent <= sum(2 * window.proposed for window in trace.windows)


def test_windows_do_not_cross_the_grid(prompt: torch.Tensor) -> None:
    windows = decode(
        tiny_llada(), prompt, gen_length=LENGTH, verify="two-stream", anchor=4, steps=1
    ).trace.windows
    assert all(window.start // 4 == (window.start + window.proposed - 1) // 4 for window in windows)


def test_cached_context_gives_the_plain_logits_in_half_precision(prompt: torch.Tensor) -> None:
    backbone = tiny_llada(2)
    backbone.model.to(torch.bfloat16)
    positions = torch.arange(len(prompt))
    logits, cache = backbone.extend(prompt[None], positions, positions)
    assert torch.equal(logits, backbone.logits(prompt[None])) and logits.dtype == torch.bfloat16
    again, _ = backbone.extend(prompt[None, :2], positions[:2], positions[:2], cache)
    assert again.dtype == torch.bfloat16


# A fresh context where verification is in doubt
def test_thresholds_lead_from_the_law_of_two_streams_to_the_papers(small: Backbone) -> None:
    """In doubt nowhere, somewhere, everywhere: the laws differ, and the last one is the full
    verification's."""
    laws = [
        sequential_law(small, [0, 1], 3, 1.0, refresh_below=below) for below in (0.0, 0.65, 1.1)
    ]
    run = partial(tokens, small, torch.tensor([0, 1]), gen_length=3, temperature=1.0, steps=1)
    full = enumerate_law(lambda sampler: torch.tensor(run(sampler=sampler)))
    distances = [total_variation(law, full) for law in laws]
    assert distances[0] > distances[1] > 1e-3 and distances[2] < 1e-5


def test_windows_are_what_was_up_for_acceptance(prompt: torch.Tensor) -> None:
    run = partial(
        decode, tiny_llada(0), prompt, gen_length=LENGTH, verify="two-stream", steps=1, window=4
    )
    trace = run(refresh_below=0.25).trace
    assert sum(window.committed for window in trace.windows) == LENGTH
    assert all(
        window.committed == min(window.accepted + 1, window.proposed) for window in trace.windows
    )


def test_a_fresh_context_costs_a_query_that_doubts_and_a_context_pass(prompt: torch.Tensor) -> None:
    """By its draft probs nothing after a doubtful position is reached: the query that finds the
    doubt comes alone."""
    run = partial(
        decode,
        tiny_llada(0),
        prompt,
        gen_length=LENGTH,
        verify="two-stream",
        steps=1,
        refresh_below=1.0,
    )
    trace = run(skip_root_row=True, adaptive_window=True).trace
    assert trace.forwards == LENGTH + (LENGTH - 1)
    assert trace.token_forwards == LENGTH * (len(prompt) + LENGTH) + 2 * (LENGTH - 1)


# From the most confident position to the least
def test_the_likeliest_comes_first_and_ties_from_left_to_right() -> None:
    context = {
        4: torch.tensor([1.0, 0, -torch.inf]),
        7: torch.tensor([0.0, 5, -torch.inf]),
        9: torch.tensor([0.0, 1, -torch.inf]),
    }
    assert by_confidence(context) == [7, 4, 9]


def test_a_response_ends_at_an_eos_that_nothing_unresolved_precedes(prompt: torch.Tensor) -> None:
    """Tokens up to the first EOS are those without stopping, whichever token is EOS."""
    backbone = tiny_llada(0)
    run = partial(
        two_stream, backbone, prompt, order="confidence", gen_length=16, steps=1, window=2
    )
    free, stopped_early = run(), 0
    for place, token in enumerate(free):
        backbone.eos_id = token
        stopped, end = run(stop_at_eos=True), free.index(token)
        assert stopped[: end + 1] == free[: end + 1] and end <= place
        stopped_early += stopped != free
    assert stopped_early


# Targets on every family, whatever the window, the draft or what was accepted
ROW, SEGMENT = [3, 14, 39, 39, 9, 39, 39, 26, 39], [2, 3, 5, 6, 8]  # 39 is the tiny models' mask
DRAFTS = [5, 6, 7, 8, 9]
CLOSE = {"atol": 1e-5, "rtol": 1e-4}


@pytest.fixture(scope="module", params=NAMES)
def backbone(request: pytest.FixtureRequest) -> Backbone:
    return tiny(request.param, seed=2)


def verifier(backbone: Backbone) -> TwoStreamVerifier:
    made = TwoStreamVerifier(request_for(backbone, ROW), FeFOptions(window=8))
    made.begin(SEGMENT)
    return made


def verified(made: TwoStreamVerifier, segment: list[int], drafts: list[int]) -> torch.Tensor:
    """Target logits of a window, (W, V)."""
    return made.verify(segment, Proposal(drafts)).logits_WV


def test_targets_equal_those_without_a_cache(backbone: Backbone) -> None:
    expected_WV = torch.stack(
        [query_logits(backbone, ROW, SEGMENT, DRAFTS[:m]) for m in range(len(SEGMENT))]
    )
    expected_WV[:, backbone.mask_id] = -torch.inf
    torch.testing.assert_close(verified(verifier(backbone), SEGMENT, DRAFTS), expected_WV, **CLOSE)


@pytest.mark.parametrize("window", [1, 2, 3, 5])
def test_targets_do_not_depend_on_the_window(backbone: Backbone, window: int) -> None:
    whole_WV = verified(verifier(backbone), SEGMENT, DRAFTS)
    request = request_for(backbone, ROW)
    made = TwoStreamVerifier(request, FeFOptions(window=window))
    made.begin(SEGMENT)
    for start in range(0, len(SEGMENT), window):
        part = slice(start, start + window)
        logits_WV = verified(made, SEGMENT[start:], DRAFTS[part])
        torch.testing.assert_close(logits_WV, whole_WV[part], **CLOSE)
        request.commit(SEGMENT[part], DRAFTS[part], None, "accepted")


@pytest.mark.parametrize("accepted", [0, 1, 3])
def test_rejected_drafts_leave_nothing_behind(backbone: Backbone, accepted: int) -> None:
    request = request_for(backbone, ROW)
    made = TwoStreamVerifier(request, FeFOptions(window=8))
    made.begin(SEGMENT)
    verified(made, SEGMENT, DRAFTS)
    kept = [*DRAFTS[:accepted], 30]  # the draft after those was rejected
    request.commit(SEGMENT[: len(kept)], kept, None, "corrected")
    rest = SEGMENT[len(kept) :]
    fresh_WV = verified(verifier(backbone), SEGMENT, [*kept, *DRAFTS[len(kept) :]])
    torch.testing.assert_close(
        verified(made, rest, DRAFTS[len(kept) :]), fresh_WV[len(kept) :], **CLOSE
    )


def test_the_context_pass_gives_the_target_of_the_first_position(backbone: Backbone) -> None:
    made = TwoStreamVerifier(request_for(backbone, ROW), FeFOptions(window=8))
    root_V = made.begin(SEGMENT)[SEGMENT[0]]
    torch.testing.assert_close(root_V, verified(made, SEGMENT, DRAFTS)[0], **CLOSE)


def test_with_one_position_a_segment_the_target_is_the_full_one(
    backbone: Backbone, prompt: torch.Tensor
) -> None:
    assert tokens(backbone, prompt, verify="two-stream", anchor=1) == tokens(backbone, prompt)


@pytest.mark.parametrize("name", SHIFTED)
def test_a_draft_costs_a_shifted_model_three_tokens(name: str, prompt: torch.Tensor) -> None:
    run = partial(decode, tiny(name), prompt, gen_length=16, verify="two-stream", steps=1)
    trace = run(window=4).trace
    spent = trace.token_forwards - (len(prompt) + 16) - trace.draft_token_forwards
    # A clean token, and a query behind a copy of the token before it; a corrected clean token is
    # computed once more.
    assert spent <= sum(3 * window.proposed for window in trace.windows)
