"""The LLaDA decoder against the official sampler's rules; its options about EOS and guidance:
tests/official."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fakes import FixedLogits, RandomConditionals, Recorder, tiny_llada

from model_wrappers import decode
from model_wrappers.backbones.protocol import BackboneLike
from model_wrappers.sampling import Sampler

LENGTH = 16


def official_tokens(
    backbone: Any,
    prompt_ids: torch.Tensor,
    gen_length: int,
    block_length: int,
    steps: int,
    order: Callable[[int], torch.Tensor] | None = None,
) -> list[int]:
    """The official sampler's response at temperature 0, from whole rows. `order` gives random
    remasking's ranks."""
    begin, mask, infinity = len(prompt_ids), backbone.mask_id, float("inf")
    row = torch.cat([prompt_ids, torch.full((gen_length,), mask)])
    steps_per_block = steps * block_length // gen_length
    for block_end in range(begin + block_length, len(row) + 1, block_length):
        to_fill = int((row[block_end - block_length : block_end] == mask).sum())
        for step in range(steps_per_block):
            is_masked = row == mask
            logits_LV = backbone.logits(row[None])[0]
            best = logits_LV.argmax(-1)
            score = logits_LV.softmax(-1).gather(-1, best[:, None])[:, 0]
            score[block_end:] = -infinity
            score[~is_masked] = -infinity
            if order is not None:
                score[score > -infinity] = order(int((score > -infinity).sum())).to(score)
            quota = to_fill // steps_per_block + (step < to_fill % steps_per_block)
            keep = torch.topk(score, quota).indices
            row[keep] = torch.where(is_masked, best, row)[keep]
    return row[begin:].tolist()


def tokens(backbone: BackboneLike, prompt: torch.Tensor, **options: Any) -> list[int]:
    return decode(
        backbone, prompt, method="llada", **{"gen_length": LENGTH} | options
    ).tokens.tolist()


def assert_same_inputs(backbone: BackboneLike, prompt: torch.Tensor, steps: int) -> None:
    """The decoder's forwards see what the official sampler's see: it commits the same positions in
    the same step."""
    ours, official = Recorder(backbone), Recorder(backbone)
    assert tokens(ours, prompt, steps=steps) == official_tokens(
        official, prompt, LENGTH, LENGTH, steps
    )
    assert torch.equal(torch.cat(ours.inputs), torch.cat(official.inputs))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("block_length", "steps"),
    [(16, 16), (16, 8), (16, 3), (8, 16), (8, 8), (8, 6), (4, 16), (4, 4), (1, 16)],
)
def test_equals_the_official_sampler(
    prompt: torch.Tensor, block_length: int, steps: int, seed: int
) -> None:
    backbone = tiny_llada(seed)
    expected = official_tokens(backbone, prompt, LENGTH, block_length, steps)
    assert tokens(backbone, prompt, block_length=block_length, steps=steps) == expected


@pytest.mark.parametrize("seed", range(3))
def test_equals_the_official_sampler_with_random_remasking(prompt: torch.Tensor, seed: int) -> None:
    backbone = tiny_llada(seed)
    expected = official_tokens(backbone, prompt, LENGTH, 8, 8, order=Sampler(5).order)
    assert (
        tokens(backbone, prompt, block_length=8, steps=8, remasking="random", sampler=Sampler(5))
        == expected
    )


@pytest.mark.parametrize("steps", [16, 8, 4])
def test_equals_the_official_sampler_where_all_confidences_tie(
    prompt: torch.Tensor, steps: int
) -> None:
    backbone = FixedLogits(torch.eye(40)[torch.arange(len(prompt) + LENGTH) % 39])
    assert_same_inputs(backbone, prompt, steps)


@pytest.mark.parametrize("seed", range(3))
def test_equals_the_official_sampler_where_the_prompt_holds_a_mask(
    prompt: torch.Tensor, seed: int
) -> None:
    backbone = tiny_llada(seed)
    holed = prompt.index_fill(0, torch.tensor([2]), backbone.mask_id)
    expected = official_tokens(backbone, holed, LENGTH, 8, 8)
    assert tokens(backbone, holed, block_length=8, steps=8) == expected


def test_equals_the_official_sampler_in_bfloat16(prompt: torch.Tensor) -> None:
    backbone = tiny_llada()
    backbone.model.bfloat16()
    assert tokens(backbone, prompt, steps=8) == official_tokens(backbone, prompt, LENGTH, LENGTH, 8)


def test_confidences_are_ranked_in_the_dtype_of_the_logits(prompt: torch.Tensor) -> None:
    # nearer and nearer to 1, and all 1 in bfloat16
    certain_L = torch.linspace(30, 60, len(prompt) + LENGTH)
    backbone = FixedLogits((certain_L[:, None] * torch.eye(40)[0]).bfloat16())
    assert_same_inputs(backbone, prompt, steps=4)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("block_length", "steps"), [(16, 8), (8, 8), (4, 16)])
def test_equals_the_official_sampler_where_the_mask_is_often_chosen(
    block_length: int, steps: int, seed: int
) -> None:
    backbone, prompt = RandomConditionals(real=3, seed=seed), torch.tensor([1, 2])
    expected = official_tokens(backbone, prompt, LENGTH, block_length, steps)
    assert tokens(backbone, prompt, block_length=block_length, steps=steps) == expected
    assert backbone.mask_id in expected


@pytest.mark.parametrize("steps", [16, 8, 4])
def test_costs_one_row_a_step(prompt: torch.Tensor, steps: int) -> None:
    trace = decode(tiny_llada(), prompt, method="llada", gen_length=LENGTH, steps=steps).trace
    assert (trace.forwards, trace.rows, trace.token_forwards) == (
        steps,
        steps,
        steps * (len(prompt) + LENGTH),
    )
    assert trace.windows == [] and trace.draft_forwards == 0


def test_guidance_doubles_the_rows_and_not_the_forwards(prompt: torch.Tensor) -> None:
    trace = decode(tiny_llada(), prompt, method="llada", gen_length=LENGTH, cfg_scale=1.0).trace
    assert (trace.forwards, trace.rows) == (LENGTH, 2 * LENGTH)
