"""SSD: self-speculative decoding, lossless at temperature 0 (Gao et al., arXiv 2510.04147).

The model drafts for itself: the held logits rank the masked positions of the block by confidence, the first of them
form a chain of (position, token), and one batch verifies every prefix of the chain. A draft is accepted if it is the
very choice, position and token, that one-token-a-step LLaDA would make there, so the tokens are LLaDA's. Departures
from the paper: a linear chain (as in the FeF-DLLM paper's reproduction), and temperature 0 only. Shapes: L length, N
masked positions, V vocabulary.
"""

from __future__ import annotations

from bisect import bisect_right

import torch

from model_wrappers.decoders.llada import Choice, best, fill_after_eos
from model_wrappers.request import Request
from model_wrappers.trace import Window

Token = tuple[int, int]  # position, token


def ssd(
    request: Request,
    *,
    draft_length: int = 4,
    logits_eos_inf: bool = False,
    confidence_eos_eot_inf: bool = False,
    stop_at_eos: bool = False,
) -> list[Window]:
    """Fill the response in place; a window is one verified chain.

    draft_length: most drafts in a chain. The EOS options are LLaDA's. Raises ValueError for a
    temperature above 0 or a draft_length below 1.
    """
    if request.temperature > 0:
        raise ValueError(f"ssd is defined at temperature 0, not {request.temperature}")
    if draft_length < 1:
        raise ValueError(f"draft_length={draft_length} must be at least 1")
    backbone, x_1L, start = request.backbone, request.x_1L, request.start
    choice = Choice(request, logits_eos_inf, confidence_eos_eot_inf)
    windows: list[Window] = []
    drafts: list[Token] = []
    done = 0  # steps that one-token-a-step LLaDA would have made by now; each block takes as many as it has masks
    masks_per_block = (x_1L[0, start:] == backbone.mask_id).reshape(-1, request.block_length).sum(1)
    steps_to_end: list[int] = masks_per_block.cumsum(0).tolist()  # of each block
    length = steps_to_end[-1]

    def block_end(step: int) -> int:
        return request.block_ends[min(bisect_right(steps_to_end, step), len(steps_to_end) - 1)]

    while done < length:
        # Node k is the sequence with the first k drafts filled in.
        nodes_KL = x_1L.repeat(len(drafts) + 1, 1)
        for k, (position, token) in enumerate(drafts):
            nodes_KL[k + 1 :, position] = token
        place_N = (x_1L[0, : block_end(done + len(drafts) + 1)] == backbone.mask_id).nonzero()[:, 0]
        logits_KNV = backbone.logits(nodes_KL, positions=place_N)

        accepted = 0
        own = _ranked(nodes_KL[0], place_N, logits_KNV[0], block_end(done), choice)[:1]
        while accepted < len(drafts) and own == [drafts[accepted]]:
            accepted += 1
            at_end = done + accepted == length  # a node that fills the response chooses nothing
            end = block_end(done + accepted)
            own = [] if at_end else _ranked(nodes_KL[accepted], place_N, logits_KNV[accepted], end, choice)[:1]
        x_1L[0] = nodes_KL[accepted]
        for position, token in own:
            x_1L[0, position] = token
        if drafts:
            place = drafts[0][0] - start
            windows.append(Window(0, len(windows), place, len(drafts), accepted, accepted + len(own)))
        if stop_at_eos and fill_after_eos(request):
            break
        done += accepted + len(own)
        if done < length:
            drafts = _ranked(x_1L[0], place_N, logits_KNV[accepted], block_end(done), choice)[:draft_length]
    return windows


def _ranked(x_L: torch.Tensor, place_N: torch.Tensor, logits_NV: torch.Tensor, end: int, choice: Choice) -> list[Token]:
    """The masked positions before `end` with the tokens that the logits choose, most confident first."""
    here_N = (x_L[place_N] == choice.request.mask_id) & (place_N < end)
    place_M = place_N[here_N]
    token_M, confidence_M, _ = choice(logits_NV[here_N])
    token_L = x_L.index_put((place_M,), token_M)
    return [(place, int(token_L[place])) for place in best(len(x_L), place_M, confidence_M, len(place_M)).tolist()]
