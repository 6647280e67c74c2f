"""What every decoder is given, whatever its options."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from model_wrappers.backbone import Ledger
from model_wrappers.sampling import Sampler


@dataclass(frozen=True)
class Request:
    """One response to decode.

    backbone: the model, in the ledger. x_1L: LongTensor (1, L), prompt and response; the masks of the response are
    filled in place. start: index of the response's first token. block_length: it divides the response. temperature: 0
    is greedy. sampler: what all randomness goes through.
    """

    backbone: Ledger
    x_1L: torch.Tensor
    start: int
    block_length: int
    temperature: float
    sampler: Sampler

    @property
    def mask_id(self) -> int:
        """The mask's id."""
        return self.backbone.mask_id

    @property
    def length(self) -> int:
        """Tokens of the response."""
        return self.x_1L.shape[1] - self.start

    @property
    def block_ends(self) -> range:
        """Index after the last token of every block."""
        return range(self.start + self.block_length, self.x_1L.shape[1] + 1, self.block_length)
