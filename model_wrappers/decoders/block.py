"""Block diffusion's own sampler: a schedule, a threshold, edits.

A step commits the block's masked positions whose confidence exceeds a threshold, and at least as
many as its schedule says. With an editing threshold a step also replaces committed tokens of the
block if the model now chooses another token with a confidence above it; the block then ends after a
pass without a change. Source: SDAR (arXiv 2510.06303, JetAstra/SDAR `generate.py`); LLaDA2.0 and
2.1 (inclusionAI, `generate`), with their edits; Fast-dLLM v2 (arXiv 2509.26328, `batch_sample`),
with its sub-blocks. Shapes: L length of prompt and response, N positions of the block.
"""

from itertools import count
from typing import Literal

import torch
from torch import Tensor

from model_wrappers.decoders.llada import Choice, highest
from model_wrappers.options import EndOptions, Positive, Share
from model_wrappers.request import Request, fill_after_eos
from model_wrappers.sampling import quotas


class BlockOptions(EndOptions, frozen=True, kw_only=True):
    """Options of the decoder `block`; `stop_at_eos` acts once a block is done.

    Attributes:
        steps: denoising steps of a block, over which its positions are spread evenly (None: its
            length).
        threshold: the confidence above which a position is committed beyond the schedule (None:
            none is).
        editing_threshold: the confidence above which another token replaces a committed one (None:
            none does).
        max_post_steps: the most passes for edits once a block has no mask.
        remasking: which positions fill the schedule: the most confident, or the leftmost.
        sub_block: length of the parts that a block is decoded in, left to right, each with these
            steps (None: all at once).
    """

    steps: Positive | None = None
    threshold: Share | None = None
    editing_threshold: Share | None = None
    max_post_steps: Positive = 16
    remasking: Literal["low_confidence", "sequential"] = "low_confidence"
    sub_block: Positive | None = None
    stop_at_eos: bool = True


def decode_block(request: Request, options: BlockOptions) -> None:
    """Fill the response. Where a mask is chosen it counts as a token and stays, as in the official
    samplers.

    Raises:
        ValueError: steps or sub_block exceed the block length.
    """
    x_1L = request.x_1L
    choice = Choice(request, options)
    length = options.sub_block or request.block_length
    for name, value in {"steps": options.steps, "sub_block": options.sub_block}.items():
        if (value or 1) > request.block_length:
            raise ValueError(
                f"{name}={value} must be at most the block length, {request.block_length}"
            )
    schedule = quotas(length, options.steps or length)
    for block in request.blocks():
        begin = block.start
        choice.cache.begin_block(begin, block.stop)
        masked_N = request.masked(begin, block.stop)
        if request.backbone.reads_at and begin and x_1L[0, begin] == request.mask_id:
            # Logits predict the next position: those of this block's first token come from the
            # finished block before it, so the token is final and not denoised (Fast-dLLM v2).
            first_1 = torch.tensor([begin])
            token_1, confidence_1, _ = choice.propose(x_1L, first_1)
            request.commit(first_1, token_1, confidence_1, "unmasked")
        for part in range(begin, block.stop, length):
            is_in_part_N = (masked_N >= part) & (masked_N < part + length)
            denoise(choice, options, schedule, masked_N[is_in_part_N])
        if options.stop_at_eos and fill_after_eos(request):
            return
        request.finish(block)


def denoise(choice: Choice, options: BlockOptions, schedule: list[int], at_N: Tensor) -> None:
    """Fill and edit a block or a part of it.

    Args:
        choice: chooses tokens; it has the request.
        options: the thresholds and the order.
        schedule: how many positions each step commits.
        at_N: positions to fill, LongTensor (N,).
    """
    request = choice.request
    x_1L = request.x_1L
    edit_passes = 0  # passes that began without a mask
    for step in count():
        is_masked_N = x_1L[0, at_N] == request.mask_id
        masks_left = bool(is_masked_N.any())
        # Masks may be left after the schedule: the model may choose the mask as a token, also as an
        # edit.
        if masks_left and step >= len(schedule):
            return
        if not masks_left and (
            options.editing_threshold is None or edit_passes == options.max_post_steps
        ):
            return
        read_N = at_N if options.editing_threshold is not None else at_N[is_masked_N]
        token_N, confidence_N, _ = choice.propose(x_1L, read_N)
        before_N = x_1L[0, read_N]
        edited_N = torch.zeros_like(read_N, dtype=torch.bool)
        if options.editing_threshold is not None:
            edited_N = (before_N != request.mask_id) & (token_N != before_N)
            edited_N &= confidence_N > options.editing_threshold
        if masks_left:
            open_N = before_N == request.mask_id
            in_order = options.remasking == "sequential"
            proposed = (read_N[open_N], token_N[open_N], confidence_N[open_N])
            commit_best(request, *proposed, schedule[step], options.threshold, in_order)
        if bool(edited_N.any()):
            request.remask(read_N[edited_N].tolist())
            request.commit(read_N[edited_N], token_N[edited_N], confidence_N[edited_N], "unmasked")
        edit_passes += not masks_left
        if not masks_left and not bool(edited_N.any()):
            return


def commit_best(
    request: Request,
    at_M: Tensor,
    token_M: Tensor,
    confidence_M: Tensor,
    quota: int,
    threshold: float | None,
    in_order: bool = False,
) -> None:
    """Commit all candidates above the threshold, or the quota if that is more.

    Args:
        request: the response.
        at_M: positions of the candidates.
        token_M: their proposed tokens.
        confidence_M: the confidences in these tokens.
        quota: the least number to commit, as far as there are candidates.
        threshold: confidence above which a candidate is committed (None: only the quota is).
        in_order: whether the leftmost candidates fill the quota, instead of the most confident.
    """
    count = min(quota, len(at_M))
    score_M = -at_M.to(confidence_M) if in_order else confidence_M
    confident = 0 if threshold is None else int((confidence_M > threshold).sum())
    # The threshold ranks by confidence whatever the order: all that exceed it are committed.
    if confident >= max(1, count):
        score_M = confidence_M
        count = confident
    if not count:
        return
    best = highest(request.x_1L.shape[1], at_M, score_M, count)
    request.commit(at_M[best], token_M[best], confidence_M[best], "unmasked")
