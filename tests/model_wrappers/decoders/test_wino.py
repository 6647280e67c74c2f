"""WINO: what is given, revoked and ended; its shadow on every family. Its tokens:
tests/official."""

from functools import partial

import pytest
import torch
from fakes import logits_under, request_for, tiny_llada
from families import NAMES, tiny

from model_wrappers import Backbone, decode
from model_wrappers.caches import NoCache
from model_wrappers.decoders.wino import Shadow


def test_a_token_that_was_given_is_never_revoked(prompt: torch.Tensor) -> None:
    backbone = tiny_llada(1, std=0.15)
    given = torch.full((16,), backbone.mask_id)
    given[[0, 3, 7]] = torch.tensor([5, 6, 7])
    run = partial(decode, backbone, prompt, "wino", gen_length=16, threshold=0.03, given=given)
    out = run(threshold_back=1.0)  # every token is doubtful
    assert out.tokens[[0, 3, 7]].tolist() == [5, 6, 7]
    assert out.trace.forwards > run(threshold_back=0.0).trace.forwards  # others were revoked


def test_without_revocation_every_step_commits_what_is_sure(prompt: torch.Tensor) -> None:
    backbone = tiny_llada(0, std=0.15)
    trace = decode(backbone, prompt, "wino", gen_length=16, threshold=0.0, threshold_back=0.0).trace
    assert trace.forwards == 2  # 11 of 16 masks at most (0.7), then the rest
    assert trace.token_forwards == 2 * (len(prompt) + 2 * 16)


@pytest.mark.parametrize("seed", [0, 1])
def test_ending_at_eos_keeps_the_text(prompt: torch.Tensor, seed: int) -> None:
    run = partial(decode, prompt_ids=prompt, method="wino", gen_length=32, block_length=8)
    full = run(tiny_llada(seed))
    eos = int(full.tokens[3])  # as if that token were EOS
    stopped = run(tiny_llada(seed, eos_id=eos), stop_at_eos=True)
    end = full.tokens.tolist().index(eos) + 1
    assert (
        torch.equal(stopped.tokens[:end], full.tokens[:end]) and (stopped.tokens[8:] == eos).all()
    )
    assert stopped.trace.forwards < full.trace.forwards


# The shadow: what a mask behind the sequence sees, and what precedes it where logits shift
ROW, BLOCK = [3, 14, 5, 6, 39, 8, 26, 39], [3, 4, 5, 6]  # 39 is the tiny models' mask
HELD = [3, 5, 6]  # committed


@pytest.fixture(scope="module", params=NAMES)
def backbone(request: pytest.FixtureRequest) -> Backbone:
    return tiny(request.param, seed=2)


def shadow_logits(backbone: Backbone, row: list[int]) -> torch.Tensor:
    """Logits (held, V) as the decoder asks for them."""
    request = request_for(backbone, row)
    shadow = Shadow(request, torch.tensor(BLOCK))
    cache = NoCache(request.backbone, len(row))
    read = shadow.mask_indices(torch.tensor(HELD))
    return cache.logits(
        shadow.appended_to(request.x_1L), read, shadow.position_M, shadow.visible_MM
    )


def test_a_mask_of_the_shadow_sees_all_but_what_is_at_its_position(backbone: Backbone) -> None:
    length, lead = len(ROW), -backbone.reads_at
    ids, positions, judged, is_mask = (
        list(ROW),
        list(range(length)),
        [-1] * length,
        [False] * length,
    )
    for at in BLOCK:
        for back in range(lead, -1, -1):
            ids.append(ROW[at - 1] if back else backbone.mask_id)
            positions.append(at - back)
            judged.append(at)
            is_mask.append(back == 0)

    def sees(one: int, other: int) -> bool:
        if one < length:
            return other < length
        # in the sequence: all but its position and, where that is copied, the one before
        if other < length:
            return not judged[one] - lead <= other <= judged[one]
        return is_mask[other] or judged[one] == judged[other]

    visible = torch.tensor(
        [[sees(one, other) for other in range(len(ids))] for one in range(len(ids))]
    )
    logits_LV = logits_under(backbone, ids, positions, visible)
    at_masks = [index for index in range(len(ids)) if is_mask[index] and judged[index] in HELD]
    expected_NV = logits_LV[[index - lead for index in at_masks]]
    torch.testing.assert_close(shadow_logits(backbone, ROW), expected_NV, atol=1e-5, rtol=1e-4)


def test_the_shadow_does_not_change_what_the_sequence_gives(backbone: Backbone) -> None:
    request = request_for(backbone, ROW)
    shadow = Shadow(request, torch.tensor(BLOCK))
    read = torch.arange(1, len(ROW))
    cache = NoCache(request.backbone, len(ROW))
    logits_NV = cache.logits(
        shadow.appended_to(request.x_1L), read, shadow.position_M, shadow.visible_MM
    )
    torch.testing.assert_close(
        logits_NV, backbone.logits(request.x_1L)[0, 1:], atol=1e-5, rtol=1e-4
    )
