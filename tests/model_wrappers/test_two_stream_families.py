"""Two-stream verification on every family: its targets, whatever the window, the draft or what was accepted."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from fakes import request_for
from families import NAMES, SHIFTED, tiny
from fef_reference import tokens
from two_stream_reference import query_logits

from model_wrappers import Backbone, decode
from model_wrappers.decoders.fef.targets import Proposal
from model_wrappers.decoders.fef.two_stream import TwoStreamVerifier

ROW, SEGMENT = [3, 14, 39, 39, 9, 39, 39, 26, 39], [2, 3, 5, 6, 8]  # 39 is the tiny models' mask
DRAFTS = [5, 6, 7, 8, 9]
CLOSE = {"atol": 1e-5, "rtol": 1e-4}


@pytest.fixture(scope="module", params=NAMES)
def backbone(request: pytest.FixtureRequest) -> Backbone:
    return tiny(request.param, seed=2)


def verifier(backbone: Backbone) -> TwoStreamVerifier:
    made = TwoStreamVerifier(request_for(backbone, ROW), window=8)
    made.begin(SEGMENT)
    return made


def verified(made: TwoStreamVerifier, segment: list[int], drafts: list[int]) -> torch.Tensor:
    """Target logits of a window, (W, V)."""
    return made.verify(segment, Proposal(drafts, None, None)).logits_WV


def test_targets_equal_those_without_a_cache(backbone: Backbone) -> None:
    expected_WV = torch.stack([query_logits(backbone, ROW, SEGMENT, DRAFTS[:m]) for m in range(len(SEGMENT))])
    torch.testing.assert_close(verified(verifier(backbone), SEGMENT, DRAFTS), expected_WV, **CLOSE)


@pytest.mark.parametrize("window", [1, 2, 3, 5])
def test_targets_do_not_depend_on_the_window(backbone: Backbone, window: int) -> None:
    whole_WV = verified(verifier(backbone), SEGMENT, DRAFTS)
    request = request_for(backbone, ROW)
    made = TwoStreamVerifier(request, window=window)
    made.begin(SEGMENT)
    for start in range(0, len(SEGMENT), window):
        part = slice(start, start + window)
        logits_WV = verified(made, SEGMENT[start:], DRAFTS[part])
        torch.testing.assert_close(logits_WV, whole_WV[part], **CLOSE)
        request.commit(SEGMENT[part], DRAFTS[part], None, "accepted")


@pytest.mark.parametrize("accepted", [0, 1, 3])
def test_rejected_drafts_leave_nothing_behind(backbone: Backbone, accepted: int) -> None:
    request = request_for(backbone, ROW)
    made = TwoStreamVerifier(request, window=8)
    made.begin(SEGMENT)
    verified(made, SEGMENT, DRAFTS)
    kept = [*DRAFTS[:accepted], 30]  # the draft after those was rejected
    request.commit(SEGMENT[: len(kept)], kept, None, "corrected")
    rest = SEGMENT[len(kept) :]
    fresh_WV = verified(verifier(backbone), SEGMENT, [*kept, *DRAFTS[len(kept) :]])
    torch.testing.assert_close(verified(made, rest, DRAFTS[len(kept) :]), fresh_WV[len(kept) :], **CLOSE)


@pytest.mark.parametrize("changed", range(5))
def test_changing_a_draft_leaves_the_targets_up_to_it_unchanged(backbone: Backbone, changed: int) -> None:
    other = [*DRAFTS[:changed], 20, *DRAFTS[changed + 1 :]]
    first, second = (verified(verifier(backbone), SEGMENT, each) for each in (DRAFTS, other))
    torch.testing.assert_close(first[: changed + 1], second[: changed + 1], **CLOSE)
    assert all(
        not torch.allclose(a, b, atol=1e-4) for a, b in zip(first[changed + 1 :], second[changed + 1 :], strict=True)
    )


def test_the_context_pass_gives_the_target_of_the_first_position(backbone: Backbone) -> None:
    made = TwoStreamVerifier(request_for(backbone, ROW), window=8)
    root_V = made.begin(SEGMENT)[SEGMENT[0]]
    torch.testing.assert_close(root_V, verified(made, SEGMENT, DRAFTS)[0], **CLOSE)


@pytest.mark.parametrize("savings", [{}, {"skip_root_row": True}, {"adaptive_window": True}], ids=str)
@pytest.mark.parametrize("chain", [{}, {"anchor": 5}, {"order": "confidence"}, {"refresh_below": 0.3}], ids=str)
def test_greedy_tokens_are_the_same_for_every_window(
    backbone: Backbone, prompt: torch.Tensor, chain: dict[str, Any], savings: dict[str, bool]
) -> None:
    run = partial(tokens, backbone, prompt, verify="two-stream", **chain)
    expected = run(speculative=False)
    assert [run(window=window, **savings) for window in (1, 3, 16)] == [expected] * 3


@pytest.mark.parametrize("name", NAMES)
def test_greedy_tokens_are_the_same_with_a_draft_model_that_is_mostly_rejected(name: str, prompt: torch.Tensor) -> None:
    run = partial(decode, tiny(name, seed=2), prompt, "fef", gen_length=16, verify="two-stream")
    expected = run(speculative=False).tokens
    out = run(draft=tiny(name, seed=7), window=4)
    assert torch.equal(out.tokens, expected)
    assert any(window.accepted < window.proposed for window in out.trace.windows)


def test_with_one_position_a_segment_the_target_is_the_full_one(backbone: Backbone, prompt: torch.Tensor) -> None:
    assert tokens(backbone, prompt, verify="two-stream", anchor=1) == tokens(backbone, prompt)


@pytest.mark.parametrize("name", SHIFTED)
def test_a_draft_costs_a_shifted_model_three_tokens(name: str, prompt: torch.Tensor) -> None:
    run = partial(decode, tiny(name), prompt, gen_length=16, verify="two-stream", steps=1)
    trace = run(window=4).trace
    spent = trace.token_forwards - (len(prompt) + 16) - trace.draft_token_forwards
    # A clean token, and a query behind a copy of the token before it; a corrected clean token is computed once more.
    assert spent <= sum(3 * window.proposed for window in trace.windows)
