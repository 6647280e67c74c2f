"""SSD: self-speculative decoding, lossless at temperature 0 (Gao et al., arXiv 2510.04147).

The latest logits rank the masked positions of the block by confidence. The first of them form a
chain of (position, token), and one batch verifies every prefix of it. A draft is accepted if
one-token-a-step LLaDA would choose that position and token there, so the tokens are LLaDA's.
Departures from the paper: a linear chain, as in the FeF-DLLM paper's reproduction, and temperature
0 only. Shapes: L length, N masked positions, K nodes of a chain, V vocabulary.
"""

from bisect import bisect_right
from functools import partial
from typing import NamedTuple

import torch

from model_wrappers.decoders.llada import Choice, highest
from model_wrappers.options import EndOptions, Positive
from model_wrappers.request import Request, fill_after_eos
from model_wrappers.trace import How, Rejected, Window


class SSDOptions(EndOptions, frozen=True, kw_only=True):
    """draft_length: most drafts in a chain."""

    draft_length: Positive = 4


class Link(NamedTuple):
    """A link of a chain: a token at a position, and the confidence in it."""

    position: int
    token: int
    confidence: float


def decode_ssd(request: Request, options: SSDOptions) -> None:
    """Fill the response; a window is one verified chain."""
    backbone = request.backbone
    x_1L = request.x_1L
    start = request.start
    choice = Choice(request, options)
    drafts: list[Link] = []
    done = rounds = (
        # done: steps that one-token-a-step LLaDA would have made; a block takes as many as it has
        # masks
        0
    )
    masks_per_block = (x_1L[0, start:] == backbone.mask_id).reshape(-1, request.block_length).sum(1)
    steps_to_end: list[int] = masks_per_block.cumsum(0).tolist()  # of each block
    length = steps_to_end[-1]

    def block_end(step: int) -> int:
        return request.block_ends[min(bisect_right(steps_to_end, step), len(steps_to_end) - 1)]

    while done < length:
        # Node k is the sequence with the first k drafts filled in.
        nodes_KL = x_1L.repeat(len(drafts) + 1, 1)
        for k, draft in enumerate(drafts):
            nodes_KL[k + 1 :, draft.position] = draft.token
        position_N = (x_1L[0, : block_end(done + len(drafts) + 1)] == backbone.mask_id).nonzero()[
            :, 0
        ]
        logits_KNV = backbone.logits(nodes_KL, positions=position_N)

        accepted = 0
        own = ranked(nodes_KL[0], position_N, logits_KNV[0], block_end(done), choice)[:1]
        while accepted < len(drafts) and [link[:2] for link in own] == [drafts[accepted][:2]]:
            accepted += 1
            at_end = done + accepted == length  # a node that fills the response chooses nothing
            end = block_end(done + accepted)
            own = (
                []
                if at_end
                else ranked(nodes_KL[accepted], position_N, logits_KNV[accepted], end, choice)[:1]
            )
        last: How = "corrected" if accepted < len(drafts) else "unmasked"
        how: list[How] = [
            "accepted" if number < accepted else last for number in range(accepted + len(own))
        ]
        positions, tokens, confidences = map(list, zip(*drafts[:accepted], *own, strict=True))
        request.commit(positions, tokens, confidences, how)
        if drafts:
            if accepted < len(drafts):
                request.reject(
                    partial(rejected, drafts[accepted:], position_N, logits_KNV[accepted:])
                )
            first = drafts[0].position - start
            request.record(Window(0, rounds, first, len(drafts), accepted, accepted + len(own)))
            rounds += 1
        if options.stop_at_eos and fill_after_eos(request):
            break
        done += accepted + len(own)
        if done < length:
            drafts = ranked(x_1L[0], position_N, logits_KNV[accepted], block_end(done), choice)[
                : options.draft_length
            ]


def ranked(
    x_L: torch.Tensor, position_N: torch.Tensor, logits_NV: torch.Tensor, end: int, choice: Choice
) -> list[Link]:
    """The masked positions before `end` with the tokens that the logits choose, most confident
    first."""
    here_N = (x_L[position_N] == choice.request.mask_id) & (position_N < end)
    position_M = position_N[here_N]
    token_M, confidence_M, _ = choice(logits_NV[here_N])
    order_M = highest(len(x_L), position_M, confidence_M, len(position_M))
    return list(
        map(Link, *(of_M[order_M].tolist() for of_M in (position_M, token_M, confidence_M)))
    )


def rejected(links: list[Link], position_N: torch.Tensor, logits_KNV: torch.Tensor) -> Rejected:
    """Links that were not accepted; of logits (K, N, V) at positions (N,) row k is the node that
    judges link k."""
    number = {position: n for n, position in enumerate(position_N.tolist())}
    rows = range(len(links))
    probs_KV = torch.softmax(logits_KNV[rows, [number[link.position] for link in links]], -1)
    positions, tokens, confidences = map(list, zip(*links, strict=True))
    return Rejected(positions, tokens, confidences, probs_KV[rows, tokens])
