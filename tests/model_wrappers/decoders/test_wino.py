"""WINO: what is committed and revoked, by another implementation on sets of positions; its shadow on every family."""

from functools import partial

import pytest
import torch
from fakes import logits_under, request_for, tiny_llada
from families import NAMES, tiny

from model_wrappers import Backbone, decode
from model_wrappers.caches import NoCache
from model_wrappers.decoders.wino import Shadow


def reference(
    backbone: Backbone, row: list[int], start: int, block_length: int, threshold: float, back: float
) -> list[int]:
    """The response by the paper's Algorithm 1 with the official code's bounds; a mask may be chosen as a token."""
    given = {at for at, token in enumerate(row) if token != backbone.mask_id}
    for first in range(start, len(row), block_length):
        block = range(first, first + block_length)
        masked = {at for at in range(first + block_length) if row[at] == backbone.mask_id}
        last = 30
        while masked:
            probs, shadow = with_shadow(backbone, row, block)
            held = [at for at in block if at not in masked | given]
            ranked = sorted(masked, key=lambda at: -float(probs[at].max()))
            sure = [at for at in ranked if float(probs[at].max()) > threshold]
            chosen = (sure or ranked[:1])[: min(max(int(len(masked) * 0.7), 5), 20)]
            confidence = {at: float(shadow[at - first, row[at]]) for at in held}
            doubtful = sorted((at for at in held if confidence[at] < back), key=lambda at: confidence[at])
            for at in chosen:
                row[at] = int(probs[at].argmax())
            revoked = doubtful[: last - 1] if len(chosen) > 1 else []
            for at in revoked:
                row[at] = backbone.mask_id
            masked = (masked - set(chosen)) | set(revoked)
            last = len(chosen)
    return row[start:]


def with_shadow(backbone: Backbone, row: list[int], block: range) -> tuple[torch.Tensor, torch.Tensor]:
    """Probs of the sequence (L, V) and of the block's shadow (W, V), in one pass without a cache."""
    length, wide = len(row), len(block)
    visible = torch.ones(length + wide, length + wide, dtype=torch.bool)
    visible[:length, length:] = False
    for number, at in enumerate(block):
        visible[length + number, at] = False
    logits_LV = logits_under(backbone, [*row, *[backbone.mask_id] * wide], [*range(length), *block], visible)
    probs = torch.softmax(logits_LV.double(), -1)
    return probs[:length], probs[length:]


@pytest.mark.parametrize("options", [(0.05, 0.04), (0.03, 0.05), (0.6, 0.9), (0.05, 0.0)])
@pytest.mark.parametrize("block_length", [8, 16])
@pytest.mark.parametrize("seed", range(3))
def test_tokens_are_those_of_the_algorithm(
    prompt: torch.Tensor, seed: int, block_length: int, options: tuple[float, float]
) -> None:
    backbone = tiny_llada(seed, std=0.15)
    row = [*prompt.tolist(), *[backbone.mask_id] * 16]
    thresholds = dict(zip(("threshold", "threshold_back"), options, strict=True))
    out = decode(backbone, prompt, "wino", gen_length=16, block_length=block_length, **thresholds)
    assert out.tokens.tolist() == reference(backbone, row, len(prompt), block_length, *options)


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
    assert torch.equal(stopped.tokens[:end], full.tokens[:end]) and (stopped.tokens[8:] == eos).all()
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
    read = shadow.of(torch.tensor(HELD))
    return cache.logits(shadow.behind(request.x_1L), read, shadow.position_M, shadow.visible_MM)


def test_a_mask_of_the_shadow_sees_all_but_what_is_at_its_position(backbone: Backbone) -> None:
    length, lead = len(ROW), -backbone.reads_at
    ids, positions, judged, is_mask = list(ROW), list(range(length)), [-1] * length, [False] * length
    for at in BLOCK:
        for back in range(lead, -1, -1):
            ids.append(ROW[at - 1] if back else backbone.mask_id)
            positions.append(at - back)
            judged.append(at)
            is_mask.append(back == 0)

    def sees(one: int, other: int) -> bool:
        if one < length:
            return other < length
        if other < length:  # in the sequence: all but its position and, where that is copied, the one before
            return not judged[one] - lead <= other <= judged[one]
        return is_mask[other] or judged[one] == judged[other]

    visible = torch.tensor([[sees(one, other) for other in range(len(ids))] for one in range(len(ids))])
    logits_LV = logits_under(backbone, ids, positions, visible)
    at_masks = [index for index in range(len(ids)) if is_mask[index] and judged[index] in HELD]
    expected_NV = logits_LV[[index - lead for index in at_masks]]
    torch.testing.assert_close(shadow_logits(backbone, ROW), expected_NV, atol=1e-5, rtol=1e-4)


def test_the_shadow_does_not_change_what_the_sequence_gives(backbone: Backbone) -> None:
    request = request_for(backbone, ROW)
    shadow = Shadow(request, torch.tensor(BLOCK))
    read = torch.arange(1, len(ROW))
    cache = NoCache(request.backbone, len(ROW))
    logits_NV = cache.logits(shadow.behind(request.x_1L), read, shadow.position_M, shadow.visible_MM)
    torch.testing.assert_close(logits_NV, backbone.logits(request.x_1L)[0, 1:], atol=1e-5, rtol=1e-4)
