"""Training objectives as pure functions of a batch.

Shapes: B batch, L length, V vocabulary, R position-conditioned rows or positions of a block model's
response, C slots of two streams, N what is predicted in a batch.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


def corrupt(
    clean_BL: Tensor,
    response_BL: Tensor,
    time_B: Tensor,
    mask_id: int,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Absorbing forward process at time t with a fixed number of masks, ceil(t R) of a row's R
    response tokens.

    It stands for masking each token with probability t, at a lower variance (LLaDA, arXiv
    2502.09992, Eq. 6).

    Args:
        clean_BL: ids.
        response_BL: where the response is, bool.
        time_B: times in [0, 1].
        mask_id: of the mask.
        generator: of the random numbers.

    Returns:
        The corrupted ids (B, L), and the share of each response that is masked (B,).
    """
    length_B = response_BL.sum(1)
    # At least one mask, so that every row has something to predict.
    count_B = (time_B * length_B).ceil().long().clamp_min(1)
    # Prompts get the last ranks, beyond every count.
    uniform_BL = torch.rand(clean_BL.shape, generator=generator).masked_fill(~response_BL, 2.0)
    masked_BL = uniform_BL.argsort(1).argsort(1) < count_B[:, None]
    return clean_BL.masked_fill(masked_BL, mask_id), count_B / length_B


BLOCK_LENGTHS = (8, 16, 32, 64)  # and the whole response


def corrupt_in_blocks(
    clean_BL: Tensor,
    response_BL: Tensor,
    time_B: Tensor,
    mask_id: int,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Corruption as semi-autoregressive decoding in blocks meets it (LLaDA, arXiv 2502.09992).

    A random block of a row's response, of a random length, is corrupted at time t; what is before
    it is clean, what is after it is masked. Arguments and results are those of `corrupt`.
    """
    rows = len(clean_BL)
    length_B = response_BL.sum(1)
    choice_B = torch.randint(len(BLOCK_LENGTHS) + 1, (rows,), generator=generator)
    # The last choice is the whole response, and no block is longer.
    lengths_BK = torch.cat([torch.tensor(BLOCK_LENGTHS).expand(rows, -1), length_B[:, None]], 1)
    block_B = lengths_BK.gather(1, choice_B[:, None])[:, 0].minimum(length_B)
    count_B = -(-length_B // block_B)
    begin_B = (torch.rand(rows, generator=generator) * count_B).long() * block_B
    offset_BL = (response_BL.cumsum(1) - 1).masked_fill(~response_BL, -1)
    inside_BL = (offset_BL >= begin_B[:, None]) & (offset_BL < (begin_B + block_B)[:, None])
    corrupted_BL, _ = corrupt(clean_BL, inside_BL, time_B, mask_id, generator)
    corrupted_BL = corrupted_BL.masked_fill(offset_BL >= (begin_B + block_B)[:, None], mask_id)
    return corrupted_BL, (corrupted_BL != clean_BL).sum(1) / length_B


def llada_loss(
    logits_BLV: Tensor,
    clean_BL: Tensor,
    corrupted_BL: Tensor,
    response_BL: Tensor,
    share_B: Tensor,
    weight: str = "1/t",
) -> Tensor:
    """Clean-token prediction (the paper's Eq. 2), as a mean over the response tokens of the batch.

    Args:
        logits_BLV: of the model on corrupted_BL.
        clean_BL: ids.
        corrupted_BL: ids.
        response_BL: where the response is, bool.
        share_B: the masked share t of each response.
        weight: "1/t" as in LLaDA's training (a bound on the log-likelihood), or "none", the plain
            sum of Eq. 2.
    """
    # Selected before they become float32, which for all positions would take much memory.
    masked_BL = corrupted_BL != clean_BL
    loss_N = F.cross_entropy(logits_BLV[masked_BL].float(), clean_BL[masked_BL], reduction="none")
    if weight == "1/t":
        loss_N = loss_N / share_B[:, None].expand_as(clean_BL)[masked_BL]
    return loss_N.sum() / response_BL.sum()


def next_token_loss(logits_BLV: Tensor, clean_BL: Tensor, predicted_BL: Tensor) -> Tensor:
    """Cross-entropy of the tokens where predicted_BL, as their mean; logits at i predict token
    i + 1."""
    next_BL = predicted_BL[:, 1:]
    return F.cross_entropy(logits_BLV[:, :-1][next_BL].float(), clean_BL[:, 1:][next_BL])


class PositionRows(NamedTuple):
    """Position-conditioned inputs: R rows, each of which predicts the clean token of one position.

    Attributes:
        inputs: ids (R, L).
        position: the position that a row predicts, (R,).
        target: its clean token, (R,).
        weight: of the row's loss, (R,): the weighted sum over the rows is the sum over all
            corrupted positions, exactly or in expectation.
    """

    inputs: Tensor
    position: Tensor
    target: Tensor
    weight: Tensor


def position_rows(
    clean_BL: Tensor,
    corrupted_BL: Tensor,
    count: int | None,
    generator: torch.Generator,
) -> PositionRows:
    """The paper's Algorithm 1: for each corrupted position j a row with the clean tokens before j
    and the corrupted ones from j on.

    Args:
        clean_BL: ids.
        corrupted_BL: ids.
        count: positions per example, drawn at random; None for all L_t corrupted ones.
        generator: of the random numbers.
    """
    examples = []
    positions = []
    weights = []
    for b, corrupted_L in enumerate(corrupted_BL != clean_BL):
        position_M = corrupted_L.nonzero()[:, 0]
        chosen_M = position_M
        if count is not None:
            chosen_M = position_M[torch.randperm(len(position_M), generator=generator)[:count]]
        examples.append(torch.full_like(chosen_M, b))
        positions.append(chosen_M)
        # L_t / count keeps the sum over positions unbiased.
        weights.append(torch.full(chosen_M.shape, len(position_M) / len(chosen_M)))
    example_R = torch.cat(examples)
    position_R = torch.cat(positions)
    before_RL = torch.arange(clean_BL.shape[1]) < position_R[:, None]
    inputs_RL = torch.where(before_RL, clean_BL[example_R], corrupted_BL[example_R])
    return PositionRows(inputs_RL, position_R, clean_BL[example_R, position_R], torch.cat(weights))


def fef_loss(logits_RV: Tensor, target_R: Tensor, weight_R: Tensor, tokens: int) -> Tensor:
    """Position-conditioned prediction (the paper's Eq. 3, Algorithm 1), as a mean over the batch's
    `tokens` response tokens; see `PositionRows`."""
    # By response tokens, not by rows: pieces of a batch then add up to its loss.
    return (
        weight_R * F.cross_entropy(logits_RV.float(), target_R, reduction="none")
    ).sum() / tokens


def block_loss(logits_BRV: Tensor, target_BR: Tensor, weight_BR: Tensor) -> Tensor:
    """Clean-token prediction in corrupted blocks: the mean over positions with the weights
    weight_BR; those of weight 0 are not predicted."""
    used_N = weight_BR.nonzero(as_tuple=True)
    loss_N = F.cross_entropy(logits_BRV[used_N].float(), target_BR[used_N], reduction="none")
    return (weight_BR[used_N] * loss_N).sum() / weight_BR.sum()


def two_stream_loss(
    draft_BCV: Tensor,
    target_BCV: Tensor,
    clean_BC: Tensor,
    used_BC: Tensor,
    tokens: int,
) -> Tensor:
    """Cross-entropy under the two-stream mask: that of the target, at the queries, plus that of the
    draft, in the context.

    Like fef_loss both are sums over positions, divided by the number of response tokens; positions
    before the anchor are left out.

    Args:
        draft_BCV: logits in the context.
        target_BCV: logits at the queries.
        clean_BC: the segment's clean tokens.
        used_BC: False in slots without a position.
        tokens: the sum of the responses' lengths.
    """
    used_N = used_BC.nonzero(as_tuple=True)
    draft = F.cross_entropy(draft_BCV[used_N].float(), clean_BC[used_N], reduction="sum")
    target = F.cross_entropy(target_BCV[used_N].float(), clean_BC[used_N], reduction="sum")
    return (draft + target) / tokens
