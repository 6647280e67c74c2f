"""Training for attention in blocks: what is trained is what decoding meets, and the result is a
block model."""

import json
from pathlib import Path

import pytest
import torch
from fakes import tiny_llada
from families import checkpoint
from trainers import logits_of

from harness.errors import UserError
from harness.train.__main__ import main
from harness.train.data import CorruptedBatches, EncodedExample
from harness.train.recipes import recipe
from harness.train.rows import BlockBatches, block_rows, with_queries
from harness.train.run import start as start_of
from model_wrappers import load_backbone
from model_wrappers.backbones.blocks import BlockLedger, Blocks, Grid, Kept
from model_wrappers.decoders.fef import FeFOptions
from model_wrappers.decoders.fef.targets import Proposal
from model_wrappers.decoders.fef.two_stream import TwoStreamVerifier
from model_wrappers.decoders.s2d2 import verify
from model_wrappers.request import Request
from model_wrappers.sampling import Sampler

MASK, EOS, LENGTH = 39, 38, 4
EXAMPLES: list[EncodedExample] = [
    {"index": 0, "prompt": [1, 2, 3, 4, 5], "response": [6, 7, 8, 9, 10, 11]},
    {"index": 1, "prompt": [2, 4], "response": [5, 3]},
]


MODEL = tiny_llada(0)
MODEL.blocks = Blocks(LENGTH, "response")
CLEAN_BL = torch.randint(0, 38, (2, 18), generator=torch.Generator().manual_seed(1))
STARTS = (6, 3)
MASKED_BR = torch.rand(2, 12, generator=torch.Generator().manual_seed(2)) < 0.5
ROWS = block_rows(CLEAN_BL, torch.tensor(STARTS), MASKED_BR, MASKED_BR.float(), LENGTH, MASK)


def batches(**how: float) -> dict[str, torch.Tensor]:
    return BlockBatches(CorruptedBatches(EOS, MASK, 0, lengths=()), LENGTH, **how)(EXAMPLES)


def test_a_corrupted_block_is_predicted_from_what_decoding_has_before_it() -> None:
    logits_BRV = logits_of(MODEL.model, ROWS)
    assert MODEL.blocks is not None
    for clean_L, start, masked_R, logits_RV in zip(
        CLEAN_BL, STARTS, MASKED_BR, logits_BRV, strict=True
    ):
        ledger = BlockLedger(MODEL, Grid.of(MODEL.blocks, start), Kept())
        for block in range(3):
            at = slice(block * LENGTH, (block + 1) * LENGTH)
            own_K = torch.arange(start + at.start, start + at.stop)
            ids_L = clean_L.clone()
            ids_L[own_K] = ids_L[own_K].masked_fill(masked_R[at], MASK)
            ids_L[own_K[-1] + 1 :] = MASK
            torch.testing.assert_close(
                logits_RV[at], ledger.logits(ids_L[None], own_K)[0], rtol=1e-4, atol=1e-4
            )


def test_the_queries_are_those_of_two_stream_verification_in_every_block() -> None:
    rows = with_queries(ROWS, MASKED_BR, LENGTH, MASK)
    logits_BCV = logits_of(MODEL.model, rows)[:, 12:]
    assert MODEL.blocks is not None
    for clean_L, start, segment_R, logits_CV, weight_C in zip(
        CLEAN_BL, STARTS, MASKED_BR, logits_BCV, rows.block_weight[:, 12:], strict=True
    ):
        grid, slot = Grid.of(MODEL.blocks, start), 0
        for block in range(3):
            at = start + block * LENGTH
            masked = [at + k for k in range(LENGTH) if segment_R[block * LENGTH + k]]
            if not masked:
                continue
            ids_L = clean_L[: at + LENGTH].clone()
            ids_L[masked] = MASK
            ledger = BlockLedger(MODEL, grid, Kept())
            request = Request(
                ledger, ledger, ids_L[None], start, LENGTH, 0.0, Sampler(0), grid=grid
            )
            verifier = TwoStreamVerifier(request, FeFOptions(window=LENGTH))
            verifier.segment(masked)
            found = verifier.verify(masked, Proposal(clean_L[masked].tolist()))
            own_NV = logits_CV[slot : slot + len(masked)]
            torch.testing.assert_close(
                own_NV[:, :MASK], found.logits_WV[:, :MASK], rtol=1e-4, atol=1e-4
            )
            slot += len(masked)
        assert weight_C.tolist() == [1.0] * slot + [0.0] * (len(weight_C) - slot)


def test_the_queries_of_linear_speculation_see_the_blocks_before_and_each_token_before() -> None:
    everywhere_BR = torch.ones_like(MASKED_BR)
    rows = with_queries(ROWS, everywhere_BR, LENGTH, MASK, in_context=False)
    logits_BCV = logits_of(MODEL.model, rows)[:, 12:]
    assert MODEL.blocks is not None
    for clean_L, start, logits_CV in zip(CLEAN_BL, STARTS, logits_BCV, strict=True):
        grid = Grid.of(MODEL.blocks, start)
        for block in range(3):
            at_S = torch.arange(start + block * LENGTH, start + (block + 1) * LENGTH)
            ids_1L = clean_L[None, : at_S[-1] + 1].clone()
            ids_1L[0, at_S] = MASK
            ledger = BlockLedger(MODEL, grid, Kept())
            request = Request(ledger, ledger, ids_1L, start, LENGTH, 0.0, Sampler(0), grid=grid)
            _, cache = ledger.context(ids_1L, at_S)
            found_SV = verify(request, int(at_S[0]), at_S, clean_L[at_S], cache)
            torch.testing.assert_close(logits_CV[at_S - start], found_SV, rtol=1e-4, atol=1e-4)


def test_only_masks_of_the_response_and_its_end_are_predicted() -> None:
    made = batches()
    predicted = made["block_weight"] > 0
    copy = made["inputs"].gather(1, made["positions"])
    assert (
        bool((copy[predicted] == MASK).all())
        and predicted.sum() == (made["block_weight"] == 1).sum()
    )
    # its one block holds the EOS behind its two tokens
    assert predicted[0].any() and not predicted[1, LENGTH:].any()
    assert made["target"][0].tolist() == [*EXAMPLES[0]["response"], EOS, EOS]
    again = batches()
    assert made.keys() == again.keys() and all(torch.equal(made[key], again[key]) for key in made)


def test_blocks_with_a_prefix_are_clean_up_to_their_first_mask_which_counts_more() -> None:
    made = batches(prefixes=1.0, first_weight=6.0)
    copy = made["inputs"].gather(1, made["positions"]).view(2, -1, LENGTH)
    masked = copy == MASK
    assert bool((masked.int().diff(dim=2) >= 0).all()) and bool(masked[..., -1].all())
    weight = made["block_weight"].view(2, -1, LENGTH)
    first = masked & (masked.cumsum(2) == 1)
    used = weight.sum(2, keepdim=True) > 0
    assert bool((weight[first & used] == 6).all()) and bool(
        (weight[masked & ~first & used] == 1).all()
    )


@pytest.mark.slow
def test_a_training_in_blocks_gives_a_block_model(tmp_path: Path) -> None:
    line = ["--preset", "nano", "--block-length", "16", "--steps", "2", "--batch", "2"]
    fef = [
        "--objective",
        "fef",
        "--mask",
        "two-stream",
        "--prefixes",
        "0.75",
        "--first-weight",
        "6",
    ]
    assert main([*line, *fef, "--out", str(tmp_path / "fef")]) == 0
    made = load_backbone(tmp_path / "fef")
    assert made.blocks == Blocks(16, "response")
    assert json.loads((tmp_path / "fef" / "train.json").read_text())["prefixes"] == 0.75
    with pytest.raises(UserError, match="attends in blocks of 16: add --block-length 16"):
        main(
            [
                *line[:2],
                "--objective",
                "llada",
                "--init",
                str(tmp_path / "fef"),
                "--out",
                str(tmp_path / "no"),
            ]
        )


def test_a_model_whose_blocks_count_from_the_sequence_is_not_trained(tmp_path: Path) -> None:
    folder = checkpoint("sdar", tmp_path / "sdar")
    with pytest.raises(
        UserError, match="counts blocks from the sequence's beginning, training from the response's"
    ):
        start_of(recipe("llada", "nano", {"init": str(folder), "block_length": 4}))
