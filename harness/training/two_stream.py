"""Training under the two-stream mask: one forward predicts all corrupted positions from an anchor on.

A row is the context (prompt and response), then the clean tokens of the segment, then a query for each of them. The
segment is the corrupted positions from the anchor on; those before it are clean, as when decoding reaches the anchor. A
prediction depends on the context and on the segment's tokens before its position. Two-stream verification has the same
mask.

Shapes: B batch, L length of the context, C slots (the largest segment of the batch), N = L + 2C.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from harness.training.data import CorruptedBatches, Example

# Decoding starts from a fully masked response, with a segment that begins at its first position. Times and anchors
# drawn uniformly would make both rare in training.
ALL_MASKED = 0.3  # share of the examples
FIRST_ANCHOR = 0.4  # share of the examples


def segments(corrupted_BL: torch.Tensor, uniform_B: torch.Tensor) -> torch.Tensor:
    """The corrupted positions from a random anchor on, at least one per row: (B, L) bool.

    corrupted_BL: bool. uniform_B: in [0, 1). Below FIRST_ANCHOR the anchor is the first corrupted position; above it,
    uniform over all of them.
    """
    even_B = (uniform_B - FIRST_ANCHOR).clamp_min(0) / (1 - FIRST_ANCHOR)
    anchor_B = (even_B * corrupted_BL.sum(1)).long()
    return corrupted_BL & (corrupted_BL.cumsum(1) > anchor_B[:, None])


class TwoStreamRows(NamedTuple):
    """Inputs under the two-stream mask: B rows, each with the segment whose clean tokens it predicts.

    inputs, position_ids: (B, N). visible: (B, 1, N, N) bool, True where a token (row) sees another (column). positions:
    (B, 2C), those of the segment in the context, then those of its queries. target: (B, C) clean tokens. used: (B, C)
    bool, False in the unused slots at the end of a row with a smaller segment.
    """

    inputs: torch.Tensor
    position_ids: torch.Tensor
    visible: torch.Tensor
    positions: torch.Tensor
    target: torch.Tensor
    used: torch.Tensor


def two_stream_rows(clean_BL: torch.Tensor, segment_BL: torch.Tensor, mask_id: int) -> TwoStreamRows:
    """Context with the segment masked | its clean tokens | its queries, at their positions in the context.

    clean_BL: ids. segment_BL: bool. An unused slot has some position outside the segment.
    """
    rows, length = clean_BL.shape
    count_B = segment_BL.sum(1)
    slots = int(count_B.max())
    # A stable sort brings the positions of the segment to the front, in their order.
    slot_BC = segment_BL.int().argsort(dim=1, descending=True, stable=True)[:, :slots]
    target_BC = clean_BL.gather(1, slot_BC)
    context_BL = clean_BL.masked_fill(segment_BL, mask_id)
    position_BL, query_BC = torch.arange(length).expand(rows, -1), torch.arange(length + slots, length + 2 * slots)
    return TwoStreamRows(
        inputs=torch.cat([context_BL, target_BC, torch.full_like(target_BC, mask_id)], 1),
        position_ids=torch.cat([position_BL, slot_BC, slot_BC], 1),
        visible=two_stream_mask(segment_BL, slot_BC)[:, None],
        positions=torch.cat([slot_BC, query_BC.expand(rows, -1)], 1),
        target=target_BC,
        used=torch.arange(slots) < count_B[:, None],
    )


def two_stream_mask(segment_BL: torch.Tensor, slot_BC: torch.Tensor) -> torch.Tensor:
    """Who sees whom: (B, N, N) bool.

    segment_BL: bool. slot_BC: position of each slot in the context, ascending over the segment; unused slots come last,
    so that no used slot sees them. The context sees itself. Clean token m and query m see the context except the
    segment up to m. The clean token also sees the clean tokens up to m, the query those before m and itself.
    """
    rows, length = segment_BL.shape
    slots = slot_BC.shape[1]
    earlier_BCL = segment_BL[:, None] & (torch.arange(length) <= slot_BC[:, :, None])
    up_to_CC = torch.ones(slots, slots, dtype=torch.bool).tril()
    visible_BNN = torch.zeros(rows, length + 2 * slots, length + 2 * slots, dtype=torch.bool)
    clean, query = slice(length, length + slots), slice(length + slots, None)
    visible_BNN[:, :length, :length] = True
    visible_BNN[:, clean, :length] = visible_BNN[:, query, :length] = ~earlier_BCL
    visible_BNN[:, clean, clean] = up_to_CC
    visible_BNN[:, query, clean] = up_to_CC.tril(-1)
    visible_BNN[:, query, query] = torch.eye(slots, dtype=torch.bool)
    return visible_BNN


class TwoStreamBatches:
    """Collator: corrupted batches as rows under the two-stream mask, with a random anchor for each example."""

    def __init__(self, batches: CorruptedBatches) -> None:
        self._batches = batches

    def __call__(self, examples: list[Example]) -> dict[str, torch.Tensor]:
        """B examples -> the fields of TwoStreamRows, and tokens, the sum of the responses' lengths."""
        batch = self._batches(examples, all_masked=ALL_MASKED)
        generator = torch.Generator().manual_seed(self._batches.seed * 1_000_003 + examples[0]["index"] + 1)
        segment_BL = segments(batch["corrupted"] != batch["clean"], torch.rand(len(examples), generator=generator))
        rows = two_stream_rows(batch["clean"], segment_BL, self._batches.mask_id)
        return rows._asdict() | {"tokens": batch["response"].sum()}
