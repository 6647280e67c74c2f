"""Training under the two-stream mask: one forward predicts all corrupted positions from an anchor on.

A row is the context (prompt and response), then the clean tokens of the segment, then a query for each of them. The
segment is the corrupted positions from the anchor on, in the order of the row: from left to right, or any other. Those
before it are clean, as when decoding reaches the anchor. A prediction depends on the context and on the segment's
tokens before its position in that order. Two-stream verification has the same mask.

Shapes: B batch, L length of the context, C slots (the largest segment of the batch), N = L + 2C.
"""

from typing import NamedTuple

import torch

from harness.train.data import CorruptedBatches, EncodedExample

# Decoding starts from a fully masked response, with a segment that begins at its first position. Times and anchors
# drawn uniformly would make both rare in training.
ALL_MASKED = 0.3  # share of the examples
FIRST_ANCHOR = 0.4  # share of the examples


def left_to_right(corrupted_BL: torch.Tensor) -> torch.Tensor:
    """The rank of every corrupted position from left to right, from 0: (B, L)."""
    return corrupted_BL.cumsum(1) - 1


def in_random_orders(corrupted_BL: torch.Tensor, share: float, generator: torch.Generator) -> torch.Tensor:
    """The rank of every corrupted position in the order of its row, from 0: (B, L). Others come last.

    share: of the rows that have a random order; the others go from left to right.
    """
    rows, length = corrupted_BL.shape
    key_BL = torch.rand(rows, length, generator=generator)
    is_random_B = torch.rand(rows, generator=generator) < share
    key_BL = torch.where(is_random_B[:, None], key_BL, torch.arange(length) / length)
    return key_BL.masked_fill(~corrupted_BL, 2).argsort(dim=1, stable=True).argsort(dim=1)


def segments(corrupted_BL: torch.Tensor, uniform_B: torch.Tensor, rank_BL: torch.Tensor) -> torch.Tensor:
    """The corrupted positions from a random anchor on, at least one per row: (B, L) bool.

    corrupted_BL: bool. uniform_B: in [0, 1). Below FIRST_ANCHOR the anchor is the first corrupted position; above it,
    uniform over all of them. rank_BL: of the corrupted positions in the order of their row.
    """
    even_B = (uniform_B - FIRST_ANCHOR).clamp_min(0) / (1 - FIRST_ANCHOR)
    anchor_B = (even_B * corrupted_BL.sum(1)).long()
    return corrupted_BL & (rank_BL >= anchor_B[:, None])


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


def two_stream_rows(
    clean_BL: torch.Tensor, segment_BL: torch.Tensor, mask_id: int, rank_BL: torch.Tensor | None = None
) -> TwoStreamRows:
    """Context with the segment masked | its clean tokens | its queries, at their positions in the context.

    clean_BL: ids. segment_BL: bool. rank_BL: of the segment's positions in the order of their row; None is from left to
    right. An unused slot has some position outside the segment.
    """
    rows, length = clean_BL.shape
    count_B = segment_BL.sum(1)
    slots = int(count_B.max())
    # A stable sort brings the positions of the segment to the front, in their order.
    ranked_BL = left_to_right(segment_BL) if rank_BL is None else rank_BL
    slot_BC = ranked_BL.masked_fill(~segment_BL, length).argsort(dim=1, stable=True)[:, :slots]
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

    segment_BL: bool. slot_BC: position of each slot in the context, in the order of the row; unused slots come last, so
    that no used slot sees them. The context sees itself. Clean token m and query m see the context except the
    segment up to m. The clean token also sees the clean tokens up to m, the query those before m and itself.
    """
    rows, length = segment_BL.shape
    slots = slot_BC.shape[1]
    slots_C = torch.arange(slots)
    number_BL = torch.full_like(segment_BL, slots, dtype=torch.long).scatter(1, slot_BC, slots_C.expand(rows, -1))
    earlier_BCL = segment_BL[:, None] & (number_BL[:, None] <= slots_C[:, None])
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
    """Collator: corrupted batches as rows under the two-stream mask, with a random anchor for each example.

    random_orders: share of the examples whose positions come in a random order; the others go from left to right.
    """

    def __init__(self, batches: CorruptedBatches, random_orders: float = 0.0) -> None:
        self._batches, self._random_orders = batches, random_orders

    def __call__(self, examples: list[EncodedExample]) -> dict[str, torch.Tensor]:
        """B examples -> the fields of TwoStreamRows, and tokens, the sum of the responses' lengths."""
        batch = self._batches(examples, all_masked=ALL_MASKED)
        generator = torch.Generator().manual_seed(self._batches.seed * 1_000_003 + examples[0]["index"] + 1)
        uniform_B = torch.rand(len(examples), generator=generator)
        corrupted_BL = batch["corrupted"] != batch["clean"]
        rank_BL = in_random_orders(corrupted_BL, self._random_orders, generator)
        segment_BL = segments(corrupted_BL, uniform_B, rank_BL)
        rows = two_stream_rows(batch["clean"], segment_BL, self._batches.mask_id, rank_BL)
        return rows._asdict() | {"tokens": batch["response"].sum()}
