"""Training under the two-stream mask: its predictions against separate forwards, its batches, and a
whole training."""

from pathlib import Path

import pytest
import torch
from fakes import tiny_llada
from trainers import logits_of, trainer
from two_stream_reference import query_logits

from harness.train.data import CorruptedBatches, EncodedExample
from harness.train.objectives import two_stream_loss
from harness.train.rows import (
    ALL_MASKED,
    FIRST_ANCHOR,
    TwoStreamBatches,
    TwoStreamRows,
    in_random_orders,
    left_to_right,
    segments,
    two_stream_rows,
)

MASK, LENGTH = 39, 12
SEGMENTS = ([3, 5, 6, 9, 11], [7], [4, 5, 6, 7, 8, 9, 10, 11])
BACKBONE = tiny_llada(0)
MODEL = BACKBONE.model
CLEAN = torch.randint(0, 38, (3, LENGTH), generator=torch.Generator().manual_seed(0))


def segment_of(*rows: list[int]) -> torch.Tensor:
    segment_BL = torch.zeros(len(rows), LENGTH, dtype=torch.bool)
    for row, positions in enumerate(rows):
        segment_BL[row, positions] = True
    return segment_BL


def log_probs(rows: TwoStreamRows) -> tuple[torch.Tensor, torch.Tensor]:
    """Logarithms of the draft and target probs, (B, C, V) each."""
    draft_BCV, target_BCV = logits_of(MODEL, rows).log_softmax(-1).chunk(2, 1)
    return draft_BCV, target_BCV


@pytest.mark.parametrize("orders", [SEGMENTS, ([9, 3, 11, 6, 5], [7], [11, 10, 4, 8, 5, 9, 7, 6])])
def test_the_predictions_are_those_of_separate_forwards(orders: tuple[list[int], ...]) -> None:
    """In any order: a query sees the clean tokens that come before it there."""
    rank_BL = torch.zeros(3, LENGTH, dtype=torch.long)
    for b, segment in enumerate(orders):
        rank_BL[b, segment] = torch.arange(len(segment))
    rows = two_stream_rows(CLEAN, segment_of(*SEGMENTS), MASK, rank_BL)
    draft_BCV, target_BCV = log_probs(rows)
    with torch.no_grad():
        context_BLV = MODEL(
            input_ids=CLEAN.masked_fill(segment_of(*SEGMENTS), MASK)
        ).logits.log_softmax(-1)
    for b, segment in enumerate(orders):
        assert rows.used[b].tolist() == [m < len(segment) for m in range(rows.used.shape[1])]
        assert rows.target[b, : len(segment)].tolist() == CLEAN[b, segment].tolist()
        torch.testing.assert_close(
            draft_BCV[b, : len(segment)], context_BLV[b, segment], rtol=0, atol=1e-4
        )
        for m in range(len(segment)):
            context = CLEAN.masked_fill(segment_of(*SEGMENTS), MASK)[b].tolist()
            expected = query_logits(
                BACKBONE, context, segment, CLEAN[b, segment[:m]].tolist()
            ).log_softmax(-1)
            torch.testing.assert_close(target_BCV[b, m], expected, rtol=0, atol=1e-4)


def test_an_order_is_random_in_a_share_of_the_rows_and_holds_every_corrupted_position_once() -> (
    None
):
    corrupted_BL = torch.rand(400, LENGTH, generator=torch.Generator().manual_seed(1)) < 0.7
    rank_BL = in_random_orders(corrupted_BL, 0.25, torch.Generator().manual_seed(0))
    for rank_L, corrupted_L in zip(rank_BL, corrupted_BL, strict=True):
        assert sorted(rank_L[corrupted_L].tolist()) == list(range(int(corrupted_L.sum())))
    same_B = ((rank_BL == left_to_right(corrupted_BL)) | ~corrupted_BL).all(1)
    # 300 of 400 rows are expected to go from left to right; 5 standard deviations are 43.
    assert abs(int(same_B.sum()) - 300) < 43
    none_BL = in_random_orders(corrupted_BL, 0.0, torch.Generator().manual_seed(0))
    assert torch.equal(none_BL[corrupted_BL], left_to_right(corrupted_BL)[corrupted_BL])


def test_the_loss_is_the_sum_of_both_cross_entropies_per_response_token() -> None:
    rows = two_stream_rows(CLEAN, segment_of(*SEGMENTS), MASK)
    draft_BCV, target_BCV = log_probs(rows)
    expected = -sum(
        float(log_probs_BCV[b, m, CLEAN[b, position]]) / 20
        for log_probs_BCV in (draft_BCV, target_BCV)
        for b, segment in enumerate(SEGMENTS)
        for m, position in enumerate(segment)
    )
    loss = two_stream_loss(draft_BCV, target_BCV, rows.target, rows.used, tokens=20)
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def trained_loss(folder: Path, clean_BL: torch.Tensor, segment_BL: torch.Tensor) -> float:
    batch = two_stream_rows(clean_BL, segment_BL, MASK)._asdict() | {"tokens": torch.tensor(1)}
    made = trainer(folder)
    return float(made.compute_loss(made.model, batch).detach())


def test_other_examples_of_a_batch_do_not_change_an_examples_loss(tmp_path: Path) -> None:
    """After prompts of 3, 7 and 4 tokens, segments of 5, 1 and 8: the smaller ones have unused
    slots."""
    together = trained_loss(tmp_path, CLEAN, segment_of(*SEGMENTS))
    alone = [
        trained_loss(tmp_path, CLEAN[b : b + 1], segment_of(segment))
        for b, segment in enumerate(SEGMENTS)
    ]
    assert together == pytest.approx(sum(alone), rel=1e-5)


RESPONSE = 21  # tokens, with the EOS that a batch adds
EXAMPLES: list[EncodedExample] = [
    {"index": i, "prompt": [1, 2], "response": list(range(10, 30))} for i in range(600)
]


def test_the_segment_is_the_corrupted_positions_from_the_anchor_on() -> None:
    corrupted_BL = segment_of(SEGMENTS[0], SEGMENTS[0], SEGMENTS[0], SEGMENTS[1])
    even = 1 - FIRST_ANCHOR
    uniform_B = torch.tensor([FIRST_ANCHOR / 2, FIRST_ANCHOR + 0.5 * even, 0.9999, 0.9999])
    segment_BL = segments(corrupted_BL, uniform_B, left_to_right(corrupted_BL))
    assert torch.equal(
        segment_BL, segment_of(SEGMENTS[0], SEGMENTS[0][2:], SEGMENTS[0][4:], SEGMENTS[1])
    )


def test_examples_are_all_mask_as_often_as_asked_for() -> None:
    corrupted = CorruptedBatches(9, MASK, seed=0, lengths=())
    share = torch.cat(
        [corrupted(EXAMPLES[i : i + 4], all_masked=0.3)["share"] for i in range(0, 600, 4)]
    )
    assert float((share == 1).float().mean()) == pytest.approx(0.3 + 0.7 / RESPONSE, abs=0.01)
    assert float((share <= 0.5).float().mean()) == pytest.approx(0.7 / 2, abs=0.7 / RESPONSE)


def test_batches_begin_as_decoding_does_as_often_as_said() -> None:
    """With the whole response as the segment: a time that masks it all, and the first position as
    the anchor."""
    batches = TwoStreamBatches(CorruptedBatches(9, MASK, seed=0, lengths=()))
    sizes = torch.cat([batches(EXAMPLES[i : i + 4])["used"].sum(1) for i in range(0, 600, 4)])
    all_masked, first = (share + (1 - share) / RESPONSE for share in (ALL_MASKED, FIRST_ANCHOR))
    # five standard deviations of a binomial
    bound = 5 * (all_masked * first * (1 - all_masked * first) / 600) ** 0.5
    assert float((sizes == RESPONSE).float().mean()) == pytest.approx(all_masked * first, abs=bound)
