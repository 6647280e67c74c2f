"""Training rows with an attention mask: for two-stream verification, and for attention in blocks.

Two streams: a row is the context (prompt and response), then the clean tokens of the segment, then
a query for each of them. The segment is the corrupted positions from an anchor on, in the row's
order; those before the anchor are clean. A prediction depends on the context and on the segment's
tokens before its position, as in two-stream verification.

Blocks, of which the first begins with the response: a row is prompt and response, then a corrupted
copy of the response at the same positions. A clean token sees the clean blocks up to its own; a
corrupted one sees the clean blocks before its own, and its own corrupted block. Source: BD3LM
(Arriola et al., arXiv 2503.09573). For two-stream verification a clean token and a query follow for
each corrupted token, with the corrupted copy of their block as context; for linear speculation they
follow for every token, without that copy.

Shapes: B batch, L length of prompt and response, R of the response in whole blocks, C slots (the
largest segment of the batch, or the most corrupted positions of a row in blocks), N length of a
row.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from harness.train.data import Batch, CorruptedBatches, EncodedExample

# Decoding starts from a fully masked response, with a segment that begins at its first position.
# Times and anchors drawn uniformly would make both rare in training.
ALL_MASKED = 0.3  # share of the examples
FIRST_ANCHOR = 0.4  # share of the examples


def left_to_right(corrupted_BL: Tensor) -> Tensor:
    """The rank of every corrupted position from left to right, from 0: (B, L)."""
    return corrupted_BL.cumsum(1) - 1


def in_random_orders(corrupted_BL: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """The rank of every corrupted position in its row's order, from 0: (B, L); clean positions come
    last.

    Args:
        corrupted_BL: which positions are corrupted.
        share: of the rows that have a random order; the others go from left to right.
        generator: of the random numbers.
    """
    rows, length = corrupted_BL.shape
    key_BL = torch.rand(rows, length, generator=generator)
    is_random_B = torch.rand(rows, generator=generator) < share
    key_BL = torch.where(is_random_B[:, None], key_BL, torch.arange(length) / length)
    # Keys are below 1, so that 2 is last; the argsort of an argsort is a rank.
    return key_BL.masked_fill(~corrupted_BL, 2).argsort(dim=1, stable=True).argsort(dim=1)


def segments(corrupted_BL: Tensor, uniform_B: Tensor, rank_BL: Tensor) -> Tensor:
    """The corrupted positions from a random anchor on, at least one per row: (B, L) bool.

    Args:
        corrupted_BL: which positions are corrupted.
        uniform_B: random numbers in [0, 1); below FIRST_ANCHOR the anchor is the first corrupted
            position, above it any of them.
        rank_BL: of the corrupted positions in their row's order.
    """
    even_B = (uniform_B - FIRST_ANCHOR).clamp_min(0) / (1 - FIRST_ANCHOR)
    anchor_B = (even_B * corrupted_BL.sum(1)).long()
    return corrupted_BL & (rank_BL >= anchor_B[:, None])


class TwoStreamRows(NamedTuple):
    """Inputs under the two-stream mask; a row predicts the clean tokens of its segment.

    Attributes:
        inputs: ids (B, N).
        position_ids: positions in the sequence (B, N).
        visible: whether a token (row) sees another (column), bool (B, 1, N, N).
        positions: where logits are read, (B, 2C): the segment in the context, then the queries.
        target: clean tokens (B, C).
        used: bool (B, C), False in slots that are left over.
    """

    inputs: Tensor
    position_ids: Tensor
    visible: Tensor
    positions: Tensor
    target: Tensor
    used: Tensor


def two_stream_rows(
    clean_BL: Tensor,
    segment_BL: Tensor,
    mask_id: int,
    rank_BL: Tensor | None = None,
) -> TwoStreamRows:
    """Rows of the context with the segment masked | its clean tokens | its queries.

    Clean tokens and queries have the segment's positions in the context; unused slots have
    positions outside the segment.

    Args:
        clean_BL: ids.
        segment_BL: the positions that are predicted.
        mask_id: of the mask.
        rank_BL: order of the segment's positions (None: from left to right).
    """
    rows, length = clean_BL.shape
    count_B = segment_BL.sum(1)
    slots = int(count_B.max())
    # A stable sort brings the positions of the segment to the front, in their order.
    ranked_BL = left_to_right(segment_BL) if rank_BL is None else rank_BL
    slot_BC = ranked_BL.masked_fill(~segment_BL, length).argsort(dim=1, stable=True)[:, :slots]
    target_BC = clean_BL.gather(1, slot_BC)
    context_BL = clean_BL.masked_fill(segment_BL, mask_id)
    position_BL = torch.arange(length).expand(rows, -1)
    query_BC = torch.arange(length + slots, length + 2 * slots)
    return TwoStreamRows(
        inputs=torch.cat([context_BL, target_BC, torch.full_like(target_BC, mask_id)], 1),
        position_ids=torch.cat([position_BL, slot_BC, slot_BC], 1),
        visible=two_stream_mask(segment_BL, slot_BC)[:, None],
        positions=torch.cat([slot_BC, query_BC.expand(rows, -1)], 1),
        target=target_BC,
        used=torch.arange(slots) < count_B[:, None],
    )


def two_stream_mask(segment_BL: Tensor, slot_BC: Tensor) -> Tensor:
    """Which token (row) sees which (column): (B, N, N) bool.

    slot_BC has the position of each slot in the context, unused slots last. The context sees
    itself. Clean token m and query m see the context except the segment up to m; the clean token
    also sees the clean tokens up to m, the query those before m and itself.
    """
    rows, length = segment_BL.shape
    slots = slot_BC.shape[1]
    slots_C = torch.arange(slots)
    # The slot of each position; `slots` where it has none, which is never up to a slot.
    number_BL = torch.full_like(segment_BL, slots, dtype=torch.long).scatter(
        1, slot_BC, slots_C.expand(rows, -1)
    )
    earlier_BCL = segment_BL[:, None] & (number_BL[:, None] <= slots_C[:, None])
    up_to_CC = torch.ones(slots, slots, dtype=torch.bool).tril()
    visible_BNN = torch.zeros(rows, length + 2 * slots, length + 2 * slots, dtype=torch.bool)
    clean = slice(length, length + slots)
    query = slice(length + slots, None)
    visible_BNN[:, :length, :length] = True
    visible_BNN[:, clean, :length] = visible_BNN[:, query, :length] = ~earlier_BCL
    visible_BNN[:, clean, clean] = up_to_CC
    # A query must not see the clean token of its own position, which it predicts.
    visible_BNN[:, query, clean] = up_to_CC.tril(-1)
    visible_BNN[:, query, query] = torch.eye(slots, dtype=torch.bool)
    return visible_BNN


class TwoStreamBatches:
    """Collator: rows under the two-stream mask, from random anchors on; a share `random_orders` of
    them is in a random order."""

    def __init__(self, batches: CorruptedBatches, random_orders: float = 0.0) -> None:
        self._batches = batches
        self._random_orders = random_orders

    def __call__(self, examples: list[EncodedExample]) -> Batch:
        """B examples -> the fields of TwoStreamRows, and tokens, the sum of the responses'
        lengths."""
        batch = self._batches(examples, all_masked=ALL_MASKED)
        generator = self._batches.generator(examples, 1)
        uniform_B = torch.rand(len(examples), generator=generator)
        corrupted_BL = batch["corrupted"] != batch["clean"]
        rank_BL = in_random_orders(corrupted_BL, self._random_orders, generator)
        segment_BL = segments(corrupted_BL, uniform_B, rank_BL)
        rows = two_stream_rows(batch["clean"], segment_BL, self._batches.mask_id, rank_BL)
        return rows._asdict() | {"tokens": batch["response"].sum()}


class BlockRows(NamedTuple):
    """Inputs as in `TwoStreamRows`, but for these attributes.

    Attributes:
        positions: of the corrupted copy, (B, R).
        target: clean tokens (B, R).
        block_weight: of each position's loss, (B, R); 0 where nothing is predicted.
    """

    inputs: Tensor
    position_ids: Tensor
    visible: Tensor
    positions: Tensor
    target: Tensor
    block_weight: Tensor


class BlockBatches:
    """Collator: responses that are corrupted block by block.

    Args:
        batches: pads the examples.
        length: tokens of a block.
        prefixes: share of the blocks with a clean prefix and masks after it, as FeF-DLLM's targets
            see them; in the others a random share of the tokens is masked.
        first_weight: weight of the first mask after such a prefix, which Algorithm 1 predicts.
        mask: "two-stream" or "linear" to train the targets of that verification as well.
    """

    def __init__(
        self,
        batches: CorruptedBatches,
        length: int,
        prefixes: float = 0,
        first_weight: float = 1,
        mask: str = "full",
    ) -> None:
        self._batches = batches
        self._length = length
        self._prefixes = prefixes
        self._first_weight = first_weight
        self._mask = mask

    def __call__(self, examples: list[EncodedExample]) -> Batch:
        """B examples -> the fields of BlockRows."""
        batch = self._batches(examples)
        clean_BL = batch["clean"]
        start_B = (~batch["response"]).sum(1)
        # Room for whole blocks from the latest start on, so that the copies of all rows fit.
        last = int(start_B.max())
        whole = -(-(clean_BL.shape[1] - last) // self._length) * self._length
        total = last + whole
        clean_BL = torch.nn.functional.pad(
            clean_BL, (0, total - clean_BL.shape[1]), value=self._batches.eos_id
        )
        generator = self._batches.generator(examples, 1)
        drawn = (len(examples), whole // self._length)  # for each block
        # Both kinds of masks are drawn for every block, so that the share of prefixes changes no
        # other draw.
        offset_K = torch.arange(self._length)
        share = torch.rand(*drawn, 1, generator=generator)
        at_random = torch.rand(*drawn, self._length, generator=generator) < share
        first = (torch.rand(*drawn, 1, generator=generator) * self._length).long()
        is_prefix = torch.rand(*drawn, 1, generator=generator) < self._prefixes
        masked_BR = torch.where(is_prefix, offset_K >= first, at_random).flatten(1)
        weight = torch.where(is_prefix & (offset_K == first), self._first_weight, 1.0)
        weight_BR = masked_BR * weight.flatten(1)
        # Blocks are trained that hold some of the response or the EOS after it.
        ends = [(len(e["response"]) // self._length + 1) * self._length for e in examples]
        used_BR = torch.arange(whole) < torch.tensor(ends)[:, None]
        rows = block_rows(
            clean_BL, start_B, masked_BR, weight_BR * used_BR, self._length, self._batches.mask_id
        )
        if self._mask == "two-stream":
            rows = with_queries(rows, masked_BR & used_BR, self._length, self._batches.mask_id)
        elif self._mask == "linear":
            rows = with_queries(
                rows, used_BR, self._length, self._batches.mask_id, in_context=False
            )
        return rows._asdict()


def block_rows(
    clean_BL: Tensor,
    start_B: Tensor,
    masked_BR: Tensor,
    weight_BR: Tensor,
    length: int,
    mask_id: int,
) -> BlockRows:
    """Rows of the clean sequence | a copy of its response, masked where masked_BR is true.

    Args:
        clean_BL: ids of prompt and response.
        start_B: where the responses begin.
        masked_BR: bool.
        weight_BR: of each position's loss.
        length: tokens of a block.
        mask_id: of the mask.
    """
    rows, total = clean_BL.shape
    within_R = torch.arange(masked_BR.shape[1])
    position_BL = torch.arange(total).expand(rows, -1)
    copy_BR = start_B[:, None] + within_R
    target_BR = clean_BL.gather(1, copy_BR)
    number_BL = (position_BL - start_B[:, None]).div(length, rounding_mode="floor")
    number_BR = (within_R // length).expand(rows, -1)
    visible_BNN = torch.zeros(rows, total + len(within_R), total + len(within_R), dtype=torch.bool)
    # A prompt's block numbers are negative: the clean blocks see it, and so does every corrupted
    # one.
    visible_BNN[:, :total, :total] = number_BL[:, None] <= number_BL[:, :, None]
    visible_BNN[:, total:, :total] = number_BL[:, None] < number_BR[:, :, None]
    visible_BNN[:, total:, total:] = number_BR[:, None] == number_BR[:, :, None]
    return BlockRows(
        inputs=torch.cat([clean_BL, target_BR.masked_fill(masked_BR, mask_id)], 1),
        position_ids=torch.cat([position_BL, copy_BR], 1),
        visible=visible_BNN[:, None],
        positions=(total + within_R).expand(rows, -1),
        target=target_BR,
        block_weight=weight_BR,
    )


def with_queries(
    rows: BlockRows, segment_BR: Tensor, length: int, mask_id: int, in_context: bool = True
) -> BlockRows:
    """Rows of `block_rows`, followed by the clean tokens of the segment and its queries.

    Both see the clean blocks before their own. Of the corrupted copy of their block they see all
    but the segment's positions up to theirs, or nothing with in_context=False. Of the clean tokens
    of the block a clean token sees those up to itself, a query those before it; and a query sees
    itself. Unused slots have weight 0.
    """
    within = segment_BR.shape[1]
    before = rows.inputs.shape[1]
    total = before - within
    count_B = segment_BR.sum(1)
    slots = max(1, int(count_B.max()))
    slot_BC = (~segment_BR).int().argsort(dim=1, stable=True)[:, :slots]
    used_BC = torch.arange(slots) < count_B[:, None]
    target_BC = rows.target.gather(1, slot_BC)
    position_BR = rows.position_ids[:, total:]
    position_BC = position_BR.gather(1, slot_BC)
    block_R = torch.arange(within) // length
    block_BC = slot_BC // length
    # The clean sequence has the prompt and everything before the block of a slot.
    begin_BC = position_BR[:, :1] + block_BC * length
    earlier_BCL = rows.position_ids[:, None, :total] < begin_BC[:, :, None]
    hidden_BCR = segment_BR[:, None] & (torch.arange(within) <= slot_BC[:, :, None])
    context_BCR = (block_R == block_BC[:, :, None]) & ~hidden_BCR & in_context
    same_BCC = (block_BC[:, None] == block_BC[:, :, None]) & used_BC[:, None]
    up_to_CC = torch.ones(slots, slots, dtype=torch.bool).tril()
    itself_CC = torch.eye(slots, dtype=torch.bool)
    visible_BNN = torch.nn.functional.pad(rows.visible[:, 0], (0, 2 * slots, 0, 2 * slots))
    clean = slice(before, before + slots)
    query = slice(before + slots, None)
    for stream in (clean, query):
        visible_BNN[:, stream, :before] = torch.cat([earlier_BCL, context_BCR], 2)
    # Unused slots see at least themselves: the softmax of an empty row would be NaN.
    visible_BNN[:, clean, clean] = same_BCC & up_to_CC | itself_CC
    visible_BNN[:, query, clean] = same_BCC & up_to_CC.tril(-1)
    visible_BNN[:, query, query] = itself_CC
    query_C = torch.arange(before + slots, before + 2 * slots)
    return BlockRows(
        inputs=torch.cat([rows.inputs, target_BC, torch.full_like(target_BC, mask_id)], 1),
        position_ids=torch.cat([rows.position_ids, position_BC, position_BC], 1),
        visible=visible_BNN[:, None],
        positions=torch.cat([rows.positions, query_C.expand(len(slot_BC), -1)], 1),
        target=torch.cat([rows.target, target_BC], 1),
        block_weight=torch.cat([rows.block_weight, used_BC.to(rows.block_weight)], 1),
    )
