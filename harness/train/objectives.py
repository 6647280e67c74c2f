"""Training objectives as pure functions of a batch. Shapes: B batch, L length, V vocabulary, C
slots of two streams."""

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
    """Absorbing forward process at time t, with the number of masks fixed: ceil(t R) of a row's R
    response tokens.

    As masking each token with probability t, at a lower variance (LLaDA, arXiv 2502.09992, Eq. 6).
    response_BL: where the response is. Returns the corrupted ids (B, L) and the share of the
    response that is masked (B,).
    """
    length_B = response_BL.sum(1)
    count_B = (time_B * length_B).ceil().long().clamp_min(1)
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
    """What semi-autoregressive decoding in blocks meets (LLaDA, arXiv 2502.09992): clean before,
    masks after.

    A random block of a row's response, of a random length, is corrupted at time t. In and out as of
    `corrupt`.
    """
    rows = len(clean_BL)
    length_B = response_BL.sum(1)
    choice_B = torch.randint(len(BLOCK_LENGTHS) + 1, (rows,), generator=generator)
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
    """Clean-token prediction (the paper's Eq. 2), averaged over the response tokens of the batch.

    share_B: the masked share t of each row. weight: "1/t" as in LLaDA's training (a bound on the
    log-likelihood), or "none", the plain sum of Eq. 2.
    """
    masked_BL = corrupted_BL != clean_BL
    loss_N = F.cross_entropy(logits_BLV[masked_BL].float(), clean_BL[masked_BL], reduction="none")
    if weight == "1/t":
        loss_N = loss_N / share_B[:, None].expand_as(clean_BL)[masked_BL]
    return loss_N.sum() / response_BL.sum()


def next_token_loss(logits_BLV: Tensor, clean_BL: Tensor, predicted_BL: Tensor) -> Tensor:
    """Cross-entropy of the next token, the mean over those that are predicted: logits at i are of
    token i + 1."""
    wanted_N = predicted_BL[:, 1:]
    return F.cross_entropy(logits_BLV[:, :-1][wanted_N].float(), clean_BL[:, 1:][wanted_N])


class PositionRows(NamedTuple):
    """Position-conditioned inputs: R rows, each with the one position whose clean token it
    predicts.

    inputs: ids (R, L). position, target, weight: (R,); the weighted sum over the rows is that over
    all corrupted positions, exactly or in expectation.
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
    """The paper's Algorithm 1: for each corrupted position j, the clean prefix before j and the
    corrupted rest.

    count: positions per example, drawn at random and weighted by L_t / count (unbiased); None for
    all of them.
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
        weights.append(torch.full(chosen_M.shape, len(position_M) / len(chosen_M)))
    example_R = torch.cat(examples)
    position_R = torch.cat(positions)
    before_RL = torch.arange(clean_BL.shape[1]) < position_R[:, None]
    inputs_RL = torch.where(before_RL, clean_BL[example_R], corrupted_BL[example_R])
    return PositionRows(inputs_RL, position_R, clean_BL[example_R, position_R], torch.cat(weights))


def fef_loss(logits_RV: Tensor, target_R: Tensor, weight_R: Tensor, tokens: int) -> Tensor:
    """Position-conditioned prediction (the paper's Eq. 3, Algorithm 1), as a mean over the batch's
    response tokens."""
    return (
        weight_R * F.cross_entropy(logits_RV.float(), target_R, reduction="none")
    ).sum() / tokens


def block_loss(logits_BRV: Tensor, target_BR: Tensor, weight_BR: Tensor) -> Tensor:
    """Clean-token prediction in corrupted blocks, a mean over what is predicted, weighted by
    weight_BR."""
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
    """Cross-entropy under the two-stream mask: of the target (queries) plus that of the draft
    (context).

    clean_BC: the segment's clean tokens, used_BC: False in slots without a position. tokens: the
    sum of the responses' lengths. Like fef_loss both are sums over positions per response token; a
    later anchor leaves out those before it.
    """
    used_N = used_BC.nonzero(as_tuple=True)
    draft = F.cross_entropy(draft_BCV[used_N].float(), clean_BC[used_N], reduction="sum")
    target = F.cross_entropy(target_BCV[used_N].float(), clean_BC[used_N], reduction="sum")
    return (draft + target) / tokens
