"""SSD: self-speculative decoding, lossless at temperature 0 (Gao et al., arXiv 2510.04147).

The latest logits rank the masked positions of the block by confidence. The first of these form a
chain of drafts (position, token), and one batch verifies every prefix of the chain. A draft is
accepted if LLaDA at one token a step would choose the same position and token after the drafts
before it, so the tokens are LLaDA's. Departures from the paper: a linear chain, as in the FeF-DLLM
paper's reproduction, and temperature 0 only. Shapes: L length, N masked positions, K nodes of a
chain, V vocabulary.
"""

from bisect import bisect_right
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from model_wrappers.decoders.llada import Choice, highest
from model_wrappers.options import EndOptions, Positive
from model_wrappers.request import Request, fill_after_eos
from model_wrappers.trace import CommitKind, Rejected, Window, commit_kinds


class SSDOptions(EndOptions, frozen=True, kw_only=True):
    """Options of the decoder `ssd`.

    Attributes:
        draft_length: the most drafts in a chain.
    """

    draft_length: Positive = 4


class Link(NamedTuple):
    """A draft of a chain: a position, its token, and the confidence in this token."""

    position: int
    token: int
    confidence: float


def decode_ssd(request: Request, options: SSDOptions) -> None:
    """Fill the response; each verified chain is recorded as a window."""
    backbone = request.backbone
    x_1L = request.x_1L
    start = request.start
    choice = Choice(request, options)
    drafts: list[Link] = []
    rounds = 0
    # LLaDA at one token a step takes as many steps for a block as it has masks. So the number of
    # its steps that are done tells which block it would decode next, also in the middle of a chain.
    done = 0
    steps_to_end = [len(request.masked(start, end)) for end in request.block_ends]
    length = steps_to_end[-1]

    # Index after the block that LLaDA decodes at this step.
    def block_end(step: int) -> int:
        return request.block_ends[min(bisect_right(steps_to_end, step), len(steps_to_end) - 1)]

    while done < length:
        # Node k is the sequence with the first k drafts filled in.
        nodes_KL = filled(x_1L, drafts)
        steps = range(done, done + len(nodes_KL))
        position_N = request.masked(0, block_end(steps.stop))
        logits_KNV = backbone.logits(nodes_KL, positions=position_N)
        choices = choices_of(logits_KNV, choice)
        # A node that fills the response chooses nothing.
        ends = [block_end(step) if step < length else 0 for step in steps]
        accepted, chain = verified(nodes_KL, drafts, position_N, choices, ends, request.mask_id)
        # The node after the accepted drafts was run too: what it ranks first is certain.
        resolved = [*drafts[:accepted], *chain[:1]]
        last_kind: CommitKind = "corrected" if accepted < len(drafts) else "unmasked"
        kinds = commit_kinds(len(resolved), accepted, last_kind)
        positions, tokens, confidences = map(list, zip(*resolved, strict=True))
        request.commit(positions, tokens, confidences, kinds)
        if drafts:
            if accepted < len(drafts):
                request.reject(
                    partial(rejected, drafts[accepted:], position_N, logits_KNV[accepted:])
                )
            first = drafts[0].position - start
            request.record(Window(0, rounds, first, len(drafts), accepted, len(resolved)))
            rounds += 1
        if options.stop_at_eos and fill_after_eos(request):
            break
        done += len(resolved)
        if done < length:
            chain = ranked(x_1L[0], position_N, choices[accepted], block_end(done), request.mask_id)
            drafts = chain[: options.draft_length]


def filled(x_1L: Tensor, links: list[Link]) -> Tensor:
    """The sequence with the first 0, 1, ... links filled in, LongTensor (1 + number of links,
    L)."""
    rows_KL = x_1L.repeat(len(links) + 1, 1)
    for k, link in enumerate(links, 1):
        rows_KL[k:, link.position] = link.token
    return rows_KL


# The tokens (N,) that a node chooses at N positions, and their confidences (N,), on the CPU.
NodeChoice = tuple[Tensor, Tensor]


def choices_of(logits_KNV: Tensor, choice: Choice) -> list[NodeChoice]:
    """Choose tokens in every node by logits (K, N, V)."""
    # All nodes at once: the host waits for the device once.
    token_M, confidence_M, _ = choice(logits_KNV.flatten(0, 1))
    shape = logits_KNV.shape[:2]
    return list(zip(token_M.view(shape), confidence_M.view(shape), strict=True))


def verified(
    nodes_KL: Tensor,
    drafts: list[Link],
    position_N: Tensor,
    choices: list[NodeChoice],
    ends: list[int],
    mask_id: int,
) -> tuple[int, list[Link]]:
    """Accept the drafts of a chain as long as each node chooses the next draft itself.

    Args:
        nodes_KL: node k is the sequence with the first k drafts filled in.
        drafts: as many as there are nodes, or one fewer.
        position_N: positions at which the nodes choose; all masks of the first node are among them.
        choices: every node's choices at these positions.
        ends: for every node, the index after its block.
        mask_id: the mask's id.

    Returns:
        The number of accepted drafts, and the ranking of the node after these. If that node did not
        run, the ranking is that of the node before it.
    """
    accepted = 0
    chain: list[Link] = []
    while accepted < len(nodes_KL):
        chain = ranked(nodes_KL[accepted], position_N, choices[accepted], ends[accepted], mask_id)
        # Position and token must agree; the confidence is that of other logits, and may differ.
        if accepted == len(drafts) or not chain or chain[0][:2] != drafts[accepted][:2]:
            break
        accepted += 1
    return accepted, chain


def ranked(
    x_L: Tensor, position_N: Tensor, chosen: NodeChoice, end: int, mask_id: int
) -> list[Link]:
    """The masked positions before `end` with the tokens that a node chooses, in descending
    confidence."""
    is_masked_N = (x_L[position_N] == mask_id) & (position_N < end)
    position_M = position_N[is_masked_N]
    token_M, confidence_M = (column_N[is_masked_N] for column_N in chosen)
    order_M = highest(len(x_L), position_M, confidence_M, len(position_M))
    columns = (position_M, token_M, confidence_M)
    return list(map(Link, *(column_M[order_M].tolist() for column_M in columns)))


def rejected(links: list[Link], position_N: Tensor, logits_KNV: Tensor) -> Rejected:
    """The links that were not accepted, with their probabilities.

    Args:
        links: these links.
        position_N: positions of the logits.
        logits_KNV: row k is the node that judges link k.
    """
    index = {position: n for n, position in enumerate(position_N.tolist())}
    rows = range(len(links))
    probs_KV = torch.softmax(logits_KNV[rows, [index[link.position] for link in links]], -1)
    positions, tokens, confidences = map(list, zip(*links, strict=True))
    return Rejected(positions, tokens, confidences, probs_KV[rows, tokens])
