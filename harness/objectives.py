"""Training objectives as pure functions of a batch.

Shapes: B batch, L length, V vocabulary.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F


def corrupt(
    clean_BL: torch.Tensor, response_BL: torch.Tensor, time_B: torch.Tensor, mask_id: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Absorbing forward process at time t, with the number of masks fixed: ceil(t R) of a row's R response tokens.

    The same in expectation over t as masking each token with probability t, at a lower variance (LLaDA, arXiv
    2502.09992, Eq. 6). clean_BL: ids; response_BL: True where a token belongs to the response (a prompt is never
    corrupted); time_B: in [0, 1]. Returns the corrupted ids (B, L) and the share of the response that is masked (B,).
    """
    length_B = response_BL.sum(1)
    count_B = (time_B * length_B).ceil().long().clamp_min(1)
    uniform_BL = torch.rand(clean_BL.shape, generator=generator).masked_fill(~response_BL, 2.0)
    masked_BL = uniform_BL.argsort(1).argsort(1) < count_B[:, None]
    return clean_BL.masked_fill(masked_BL, mask_id), count_B / length_B


def llada_loss(
    logits_BLV: torch.Tensor,
    clean_BL: torch.Tensor,
    corrupted_BL: torch.Tensor,
    response_BL: torch.Tensor,
    share_B: torch.Tensor,
    weight: str = "1/t",
) -> torch.Tensor:
    """Clean-token prediction (the paper's Eq. 2), averaged over the response tokens of the batch.

    share_B: the share t of each row that is masked. weight: "1/t" as in LLaDA's own training (a bound on the
    log-likelihood), or "none", the plain sum of Eq. 2. Raises ValueError for another weight.
    """
    if weight not in ("1/t", "none"):
        raise ValueError(f"unknown loss weight {weight!r}; valid: 1/t, none")
    masked_BL = corrupted_BL != clean_BL
    loss_N = F.cross_entropy(logits_BLV[masked_BL].float(), clean_BL[masked_BL], reduction="none")
    if weight == "1/t":
        loss_N = loss_N / share_B[:, None].expand_as(clean_BL)[masked_BL]
    return loss_N.sum() / response_BL.sum()
