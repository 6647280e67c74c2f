"""Training for attention in blocks: a clean sequence and its corrupted blocks side by side, in one forward.

A row is prompt and response as they are, and after them the response once more, every block of it corrupted, at the
same positions. A clean token sees the clean blocks up to the one it is in; a corrupted one the clean blocks before that
one, and that one corrupted: what a block model sees when it decodes. Blocks begin with the response. Source: BD3LM
(Arriola et al., arXiv 2503.09573), vectorized training.

For two-stream verification, two tokens more for each corrupted one: a clean token, and a query whose prediction is the
target. Their context is the corrupted copy of their block; two_stream.py has the mask among them.

Shapes: B batch, L length of prompt and response, R of the response in whole blocks, C slots (the most corrupted
positions of a row; none without two streams), N = L + R + 2C.
"""

from typing import NamedTuple

import torch

from harness.train.data import CorruptedBatches, EncodedExample


class BlockRows(NamedTuple):
    """Inputs of B rows. inputs, position_ids: (B, N). visible: (B, 1, N, N) bool, True where a token (row) sees another
    (column). positions: (B, R), the corrupted copy. target: (B, R) clean tokens. block_weight: (B, R), 0 where nothing
    is predicted.
    """

    inputs: torch.Tensor
    position_ids: torch.Tensor
    visible: torch.Tensor
    positions: torch.Tensor
    target: torch.Tensor
    block_weight: torch.Tensor


class BlockBatches:
    """Collator: batches whose responses are corrupted block by block.

    length: tokens of a block. prefixes: share of the blocks that are clean up to a random position and masked from
    there on, as FeF-DLLM's targets have them; in the others a share of the tokens, drawn for each block, is masked.
    first_weight: of the first mask of the former, which is what Algorithm 1 predicts; all others count once.
    two_stream: the targets of two-stream verification as well.
    """

    def __init__(
        self,
        batches: CorruptedBatches,
        length: int,
        prefixes: float = 0.0,
        first_weight: float = 1.0,
        two_stream: bool = False,
    ) -> None:
        self._batches, self._length = batches, length
        self._prefixes, self._first_weight, self._two_stream = prefixes, first_weight, two_stream

    def __call__(self, examples: list[EncodedExample]) -> dict[str, torch.Tensor]:
        """B examples -> the fields of BlockRows."""
        batch = self._batches(examples)
        clean_BL, start_B = batch["clean"], (~batch["response"]).sum(1)
        last = int(start_B.max())
        whole = -(-(clean_BL.shape[1] - last) // self._length) * self._length
        total = last + whole
        clean_BL = torch.nn.functional.pad(clean_BL, (0, total - clean_BL.shape[1]), value=self._batches.eos_id)
        generator = torch.Generator().manual_seed(self._batches.seed * 1_000_003 + examples[0]["index"] + 1)
        masked_BR, weight_BR = self._masks(len(examples), whole, generator)
        weight_BR = weight_BR * self._predicted(examples, whole)
        rows = block_rows(clean_BL, start_B, masked_BR, weight_BR, self._length, self._batches.mask_id)
        if self._two_stream:
            rows = with_queries(rows, masked_BR & (weight_BR > 0), self._length, self._batches.mask_id)
        return rows._asdict()

    def _masks(self, rows: int, whole: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Which tokens are masked, and the weight of each that is: (rows, whole) both."""
        blocks = whole // self._length
        offset_K = torch.arange(self._length)
        share = torch.rand(rows, blocks, 1, generator=generator)
        at_random = torch.rand(rows, blocks, self._length, generator=generator) < share
        first = (torch.rand(rows, blocks, 1, generator=generator) * self._length).long()
        is_prefix = torch.rand(rows, blocks, 1, generator=generator) < self._prefixes
        masked = torch.where(is_prefix, offset_K >= first, at_random)
        weight = masked * torch.where(is_prefix & (offset_K == first), self._first_weight, 1.0)
        return masked.view(rows, whole), weight.view(rows, whole)

    def _predicted(self, examples: list[EncodedExample], whole: int) -> torch.Tensor:
        """Which blocks are trained: those that hold some of the response or the EOS after it, (B, whole) bool."""
        ends = [(len(each["response"]) // self._length + 1) * self._length for each in examples]
        return torch.arange(whole) < torch.tensor(ends)[:, None]


def block_rows(
    clean_BL: torch.Tensor,
    start_B: torch.Tensor,
    masked_BR: torch.Tensor,
    weight_BR: torch.Tensor,
    length: int,
    mask_id: int,
) -> BlockRows:
    """The clean sequence | its response with masks, at the same positions.

    clean_BL: ids. start_B: where each response begins; R tokens follow it. masked_BR: bool. weight_BR: of their terms.
    """
    rows, total = clean_BL.shape
    within_R = torch.arange(masked_BR.shape[1])
    position_BL, copy_BR = torch.arange(total).expand(rows, -1), start_B[:, None] + within_R
    target_BR = clean_BL.gather(1, copy_BR)
    number_BL = (position_BL - start_B[:, None]).div(length, rounding_mode="floor")
    number_BR = (within_R // length).expand(rows, -1)
    visible_BNN = torch.zeros(rows, total + len(within_R), total + len(within_R), dtype=torch.bool)
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


def with_queries(rows: BlockRows, segment_BR: torch.Tensor, length: int, mask_id: int) -> BlockRows:
    """Rows without slots, and after them the segment's clean tokens and its queries.

    segment_BR: corrupted positions of the response, a block's from left to right. Clean token m and query m see the
    clean blocks before theirs, and of the corrupted copy of their block all but the segment up to m. The clean token
    also sees the block's clean tokens up to m, the query those before m and itself. An unused slot has the weight 0.
    """
    within, before = segment_BR.shape[1], rows.inputs.shape[1]
    total = before - within
    count_B = segment_BR.sum(1)
    slots = max(1, int(count_B.max()))
    slot_BC = (~segment_BR).int().argsort(dim=1, stable=True)[:, :slots]
    used_BC = torch.arange(slots) < count_B[:, None]
    target_BC = rows.target.gather(1, slot_BC)
    position_BR = rows.position_ids[:, total:]
    position_BC = position_BR.gather(1, slot_BC)
    block_R, block_BC = torch.arange(within) // length, slot_BC // length
    # The clean sequence has the prompt and everything before the block of a slot.
    begin_BC = position_BR[:, :1] + block_BC * length
    earlier_BCL = rows.position_ids[:, None, :total] < begin_BC[:, :, None]
    hidden_BCR = segment_BR[:, None] & (torch.arange(within) <= slot_BC[:, :, None])
    context_BCR = (block_R == block_BC[:, :, None]) & ~hidden_BCR
    same_BCC = (block_BC[:, None] == block_BC[:, :, None]) & used_BC[:, None]
    up_to_CC = torch.ones(slots, slots, dtype=torch.bool).tril()
    itself_CC = torch.eye(slots, dtype=torch.bool)
    visible_BNN = torch.nn.functional.pad(rows.visible[:, 0], (0, 2 * slots, 0, 2 * slots))
    clean, query = slice(before, before + slots), slice(before + slots, None)
    for stream in (clean, query):
        visible_BNN[:, stream, :before] = torch.cat([earlier_BCL, context_BCR], 2)
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
