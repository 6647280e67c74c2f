"""Where FeF-DLLM's targets come from: what a verifier is, and the paper's, one row per draft.

It gives, for the positions j_1, j_2, ... of a window, the target of each given the drafts before it
and nothing of those after it. Another one, on top of cached keys and values, is two_stream.py.
Shapes: L length of prompt and response, W window, V vocabulary, R rows, N positions.
"""

from typing import NamedTuple, Protocol

import torch

from model_wrappers.backbones.protocol import Ledger
from model_wrappers.request import Request
from model_wrappers.sampling import token_probs

PositionLogits = dict[int, torch.Tensor]  # position in the sequence -> logits (V,)


class Proposal(NamedTuple):
    """What a window is verified on: W drafts, the probs that they were drawn from, and the draft
    logits; none without speculation.

    first_target_1V: target logits of the first position, where a pass gave them already; the
    verification leaves it out.
    """

    tokens: list[int]
    probs_WV: torch.Tensor | None
    first_target_1V: torch.Tensor | None
    logits_WV: torch.Tensor | None = None


class Verified(NamedTuple):
    """Target logits of a window, and draft logits of positions to come.

    next_drafts: by the number of accepted drafts, the logits of the positions after these given
    these alone.
    """

    logits_WV: torch.Tensor
    next_drafts: dict[int, PositionLogits]

    def probs_of(self, tokens: list[int], exclude: list[int]) -> torch.Tensor:
        """The target's probability, at temperature 1, of a token at each of the first positions:
        float64 (N,)."""
        probs_NV = token_probs(self.logits_WV[: len(tokens)], 1.0, exclude=exclude)
        return probs_NV.gather(1, ids_tensor(tokens, probs_NV)[:, None])[:, 0]


class Verifier(Protocol):
    """What the decoder asks. segment: the unresolved positions that come next, in the order they
    are resolved in.

    context: logits at the segment's positions from the pass that `segment` has just made, the
    target's own at the first one; {} where it made none.
    """

    context: PositionLogits

    def segment(self, unresolved: list[int]) -> list[int]:
        """The positions that come next of the unresolved ones."""

    def draft(self, segment: list[int]) -> PositionLogits:
        """Draft logits of the next window at least, given what is resolved, by a pass of their
        own."""

    def in_doubt(self, segment: list[int], best_W: torch.Tensor) -> torch.Tensor:
        """Which positions need another context first, bool (W,). best_W: probability of their best
        token."""

    def verify(self, segment: list[int], proposal: Proposal) -> Verified:
        """Targets of the window: as many positions as there are drafts, one if there are none,
        fewer before doubt."""

    def advance(self, count: int, accepted: int) -> None:
        """The first `count` positions of the segment are resolved, `accepted` of them by drafts."""


class FullVerifier:
    """The paper's Algorithm 2: input m of a batch is the sequence with the drafts before position m
    filled in.

    want_drafts: verification gives draft logits of the positions to come, too.
    """

    def __init__(self, request: Request, window: int, want_drafts: bool = False) -> None:
        self._backbone = request.backbone
        self._draft = request.draft
        self._x_1L = request.x_1L
        self._window = window
        self._want_drafts = want_drafts
        self.context: PositionLogits = {}

    def segment(self, unresolved: list[int]) -> list[int]:
        """All of them: every pass runs the whole sequence."""
        return unresolved

    def in_doubt(self, segment: list[int], best_W: torch.Tensor) -> torch.Tensor:
        """None: every target is conditioned on all that is resolved."""
        return torch.zeros_like(best_W, dtype=torch.bool)

    def advance(self, count: int, accepted: int) -> None:
        """Nothing is kept of a segment."""

    def draft(self, segment: list[int]) -> PositionLogits:
        """Of the next window, from one forward of the sequence as it is."""
        return draft_forward(self._draft, self._x_1L, segment[: self._window])

    def verify(self, segment: list[int], proposal: Proposal) -> Verified:
        """One batch; with `want_drafts` one more row has all drafts, so that each row gives next
        drafts."""
        wide = max(1, len(proposal.tokens))
        skip = proposal.first_target_1V is not None
        want_drafts = self._want_drafts
        rows = range(int(skip), wide + (want_drafts and wide < len(segment)))
        if not rows:
            return with_first(
                proposal, torch.empty(0, self._backbone.vocab_size, device=self._x_1L.device)
            )
        inputs_RL = self._x_1L.repeat(len(rows), 1)
        for m, input_L in zip(rows, inputs_RL, strict=True):
            input_L[segment[:m]] = ids_tensor(proposal.tokens[:m], input_L)
        # A row is read at its own position, and where drafts are wanted at as many as a window
        # after it.
        reads = [segment[m : m + 1 + (self._window if want_drafts else 0)] for m in rows]
        most = max(map(len, reads))
        filled = [read + read[-1:] * (most - len(read)) for read in reads]
        logits_RNV = self._backbone.logits(inputs_RL, positions=ids_tensor(filled, self._x_1L))
        of_rows = [dict(zip(*pair, strict=False)) for pair in zip(reads, logits_RNV, strict=True)]
        next_drafts = dict(zip(rows, of_rows, strict=True)) if want_drafts else {}
        return with_first(proposal, logits_RNV[: wide - skip, 0], next_drafts)


def with_first(
    proposal: Proposal,
    logits_NV: torch.Tensor,
    next_drafts: dict[int, PositionLogits] | None = None,
) -> Verified:
    """The verified logits, after those of the first position where the proposal has them."""
    whole_WV = (
        logits_NV
        if proposal.first_target_1V is None
        else torch.cat([proposal.first_target_1V, logits_NV])
    )
    return Verified(whole_WV, next_drafts or {})


def draft_forward(draft: Ledger, x_1L: torch.Tensor, positions: list[int]) -> PositionLogits:
    return dict(
        zip(positions, draft.logits(x_1L, positions=ids_tensor(positions, x_1L))[0], strict=True)
    )


def ids_tensor(values: object, like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.long, device=like.device)
