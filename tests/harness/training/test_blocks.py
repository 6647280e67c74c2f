"""A control's examples: the same ones under several corruptions, some of them as decoding in blocks meets them."""

from __future__ import annotations

import pytest
import torch

from harness.training.data import CorruptedBatches, NanoExamples
from harness.training.objectives import BLOCK_LENGTHS, corrupt_in_blocks
from model_wrappers import load_backbone

MASK = 99


def test_before_the_block_all_is_clean_and_behind_it_all_is_masked() -> None:
    clean = torch.arange(70).expand(64, -1)
    response = torch.zeros(64, 70, dtype=torch.bool)
    response[:, 6:] = True
    generator = torch.Generator().manual_seed(0)
    corrupted, share = corrupt_in_blocks(clean, response, torch.full((64,), 0.3), MASK, generator)
    masked = corrupted == MASK
    assert not masked[:, :6].any() and masked.any(1).all()
    assert share.tolist() == pytest.approx((masked.sum(1) / 64).tolist())
    starts = set()
    for row in masked[:, 6:]:
        fits = [
            (length, begin)
            for length in (*BLOCK_LENGTHS, 64)
            for begin in range(0, 64, length)
            if not row[:begin].any()
            and row[begin + length :].all()
            and int(row[begin : begin + length].sum()) == -(-3 * length // 10)
        ]
        assert fits, row
        starts |= {begin for _, begin in fits}
    assert len(starts) > 4


def test_each_batch_of_examples_comes_twice_corrupted_otherwise_and_without_solved_ones() -> None:
    backbone = load_backbone("nano")
    examples = NanoExamples(backbone.text_tokenizer(), 32, 4, 0, {"gsm8k-4shot": 1, "mbpp": 1}, repeats=2, shots=False)
    once = NanoExamples(backbone.text_tokenizer(), 16, 4, 0, {"gsm8k-4shot": 1, "mbpp": 1})
    batches = CorruptedBatches(backbone.eos_id, backbone.mask_id, 0, blocks=0.5)
    for number in range(4):
        first, second = ([examples[8 * number + 4 * half + n] for n in range(4)] for half in range(2))
        responses = [example["response"] for example in first]
        assert responses == [example["response"] for example in second]
        assert responses == [once[4 * number + n]["response"] for n in range(4)]
        assert max(len(example["prompt"]) for example in first) < 150
        assert not torch.equal(batches(first)["corrupted"], batches(second)["corrupted"])
