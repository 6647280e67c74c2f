"""Training for attention in blocks: a clean sequence and its corrupted blocks side by side, in one forward.

A row is prompt and response as they are, and behind them the response once more, every block of it corrupted, at the
same positions. A clean token sees the clean blocks up to its own; a corrupted one the clean blocks before its own, and
its own block corrupted: what a block model sees when it decodes. Blocks begin with the response. Source: BD3LM
(Arriola et al., arXiv 2503.09573), vectorized training.

Shapes: B batch, L length of prompt and response, R of the response in whole blocks, N = L + R.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from harness.training.data import CorruptedBatches, Example


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
    """

    def __init__(
        self, batches: CorruptedBatches, length: int, prefixes: float = 0.0, first_weight: float = 1.0
    ) -> None:
        self._batches, self._length = batches, length
        self._prefixes, self._first_weight = prefixes, first_weight

    def __call__(self, examples: list[Example]) -> dict[str, torch.Tensor]:
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
        return block_rows(clean_BL, start_B, masked_BR, weight_BR, self._length, self._batches.mask_id)._asdict()

    def _masks(self, rows: int, whole: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Which tokens are masked, and the weight of each that is: (rows, whole) both."""
        blocks = whole // self._length
        place_K = torch.arange(self._length)
        share = torch.rand(rows, blocks, 1, generator=generator)
        at_random = torch.rand(rows, blocks, self._length, generator=generator) < share
        first = (torch.rand(rows, blocks, 1, generator=generator) * self._length).long()
        is_prefix = torch.rand(rows, blocks, 1, generator=generator) < self._prefixes
        masked = torch.where(is_prefix, place_K >= first, at_random)
        weight = masked * torch.where(is_prefix & (place_K == first), self._first_weight, 1.0)
        return masked.view(rows, whole), weight.view(rows, whole)

    def _predicted(self, examples: list[Example], whole: int) -> torch.Tensor:
        """Which blocks are trained: those that hold some of the response or the EOS behind it, (B, whole) bool."""
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
