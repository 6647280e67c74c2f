"""Two-stream verification: targets, costs and refusals (its law is held in test_chains.py)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from fakes import RandomConditionals, request_for, tiny_llada
from fef_reference import LENGTH, tokens
from two_stream_reference import query_logits

from harness.training.objectives import corrupt
from harness.training.two_stream import two_stream_rows
from model_wrappers import Backbone, decode
from model_wrappers.decoders.fef.targets import Proposal
from model_wrappers.decoders.fef.two_stream import TwoStreamVerifier

two_stream = partial(tokens, verify="two-stream")


def test_the_anchor_and_the_verification_change_the_tokens(prompt: torch.Tensor) -> None:
    backbone = tiny_llada(0)
    responses = [two_stream(backbone, prompt, anchor=anchor) for anchor in (None, 4)]
    responses.append(tokens(backbone, prompt))
    assert len({tuple(response) for response in responses}) == 3


@pytest.mark.parametrize("steps", [1, 2])
def test_with_one_position_a_segment_the_target_is_the_full_one(prompt: torch.Tensor, steps: int) -> None:
    backbone = tiny_llada(5)
    assert two_stream(backbone, prompt, anchor=1, steps=steps) == tokens(backbone, prompt, steps=steps)


# One verification


def verifier(backbone: Backbone, row: list[int], segment: list[int]) -> TwoStreamVerifier:
    made = TwoStreamVerifier(request_for(backbone, row), window=8)
    made.begin(segment)
    return made


def verified(made: TwoStreamVerifier, segment: list[int], drafts: list[int]) -> torch.Tensor:
    """Target logits of a window, (W, V)."""
    return made.verify(segment, Proposal(drafts, None, None)).logits_WV


ROW, SEGMENT = [3, 14, 39, 39, 9, 39, 39, 26, 39], [2, 3, 5, 6, 8]  # 39 is the tiny models' mask


@pytest.mark.parametrize("changed", range(5))
def test_changing_a_draft_leaves_the_targets_up_to_it_unchanged(tiny: Backbone, changed: int) -> None:
    drafts = [5, 6, 7, 8, 9]
    other = [*drafts[:changed], 20, *drafts[changed + 1 :]]
    first, second = (verified(verifier(tiny, ROW, SEGMENT), SEGMENT, each) for each in (drafts, other))
    assert torch.equal(first[: changed + 1], second[: changed + 1])
    assert all(not torch.allclose(a, b) for a, b in zip(first[changed + 1 :], second[changed + 1 :], strict=True))


def test_targets_equal_those_without_a_cache(tiny: Backbone) -> None:
    drafts = [5, 6, 7, 8, 9]
    target_WV = verified(verifier(tiny, ROW, SEGMENT), SEGMENT, drafts)
    expected_WV = torch.stack([query_logits(tiny, ROW, SEGMENT, drafts[:m]) for m in range(len(SEGMENT))])
    torch.testing.assert_close(target_WV, expected_WV, atol=1e-5, rtol=1e-4)


def test_rejected_drafts_leave_nothing_behind(tiny: Backbone) -> None:
    """After a rejection the kept states are those of the committed tokens alone."""
    request = request_for(tiny, ROW)
    made = TwoStreamVerifier(request, window=8)
    made.begin(SEGMENT)
    verified(made, SEGMENT, [5, 6, 7, 8, 9])
    request.commit(SEGMENT[:2], [5, 30], None, "drawn")  # the second draft was rejected
    again_WV = verified(made, SEGMENT[2:], [11, 12, 13])
    expected_WV = torch.stack([query_logits(tiny, ROW, SEGMENT, [5, 30, 11, 12, 13][:m]) for m in range(2, 5)])
    torch.testing.assert_close(again_WV, expected_WV, atol=1e-5, rtol=1e-4)


def test_training_and_decoding_have_the_same_targets(tiny: Backbone) -> None:
    clean_BL = torch.randint(0, 38, (1, 12), generator=torch.Generator().manual_seed(4))
    response_BL = torch.arange(12)[None] >= 3
    corrupted_BL, _ = corrupt(
        clean_BL, response_BL, torch.tensor([0.7]), tiny.mask_id, torch.Generator().manual_seed(1)
    )
    segment_BL = corrupted_BL != clean_BL
    rows = two_stream_rows(clean_BL, segment_BL, tiny.mask_id)
    with torch.inference_mode():
        trained = tiny.model(
            input_ids=rows.inputs, position_ids=rows.position_ids, attention_mask=rows.visible, positions=rows.positions
        ).logits[0]
    segment = segment_BL[0].nonzero()[:, 0].tolist()
    decoded_WV = verified(verifier(tiny, corrupted_BL[0].tolist(), segment), segment, clean_BL[0, segment].tolist())
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
