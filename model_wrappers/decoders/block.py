"""Block diffusion's own sampler: a schedule, a threshold, edits.

A step commits the block's masked positions whose confidence exceeds a threshold, and at least as
many as the schedule has for it. With an editing threshold a step also replaces tokens of the block,
where the model now has another one with more confidence than that; the block then ends after a pass
that had nothing to do. Source: SDAR (arXiv 2510.06303, JetAstra/SDAR `generate.py`); LLaDA2.0 and
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
        threshold: a confidence above it commits a position beyond that (None: none does).
        editing_threshold: the confidence in another token above which it replaces a committed one
            (None: none does).
        max_post_steps: most passes for edits once a block has no mask.
        remasking: which positions come first.
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
    """Fill the response. A mask that is chosen counts as a token and stays, as in the official
    samplers."""
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
            # The finished block before has the logits of this one's first token, which is not
            # denoised.
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
    """Fill positions (N,) of a block, by a quota a step and the thresholds, and edit them."""
    request = choice.request
    x_1L = request.x_1L
    done = 0  # passes without a mask
    for step in count():
        is_masked_N = x_1L[0, at_N] == request.mask_id
        masks_left = bool(is_masked_N.any())
        # Masks can be left late: an edit may put one, which is a token that the model can choose.
        if masks_left and step >= len(schedule):
            return
        if not masks_left and (options.editing_threshold is None or done == options.max_post_steps):
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
        done += not masks_left
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
    """Commit all over the threshold, or as many as the quota has if it has more.

    Args:
        request: the response.
        at_M: positions of candidates.
        token_M: proposed for them.
        confidence_M: in these tokens.
        quota: of this step.
        threshold: None: no confidence is enough.
        in_order: the first ones fill the quota, not the surest.
    """
    number = min(quota, len(at_M))
    score_M = -at_M.to(confidence_M) if in_order else confidence_M
    over = 0 if threshold is None else int((confidence_M > threshold).sum())
    if over >= max(1, number):
        score_M = confidence_M
        number = over
    if not number:
        return
    best = highest(request.x_1L.shape[1], at_M, score_M, number)
    request.commit(at_M[best], token_M[best], confidence_M[best], "unmasked")
