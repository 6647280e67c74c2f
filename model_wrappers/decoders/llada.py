"""LLaDA: semi-autoregressive blocks, low-confidence remasking (Nie et al., arXiv 2502.09992).

Token for token the official sampler at temperature 0; LLaDA/2 is `steps = gen_length // 2`.
Decoders that differ in where logits come from, or in how many positions a step commits, share the
loop and the token choice. Shapes: L length of prompt and response, N candidates (masked positions
up to the block's end), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from model_wrappers.caches import CacheName, make_cache
from model_wrappers.options import EndOptions, NotNegative, Positive
from model_wrappers.request import Request, fill_after_eos
from model_wrappers.sampling import (
    Sampler,
    hold_ends_back,
    probs_at,
    quotas,
    sample,
    softmax_at,
    unranked_ends,
    without,
)
from model_wrappers.transfers import to_host


class UnmaskOptions(EndOptions, frozen=True, kw_only=True):
    """What every decoder has that unmasks block by block, one forward a step.

    Attributes:
        cache: which keys and values the steps of a block reuse (see model_wrappers/caches.py).
    """

    cache: CacheName = "none"


class LLaDAOptions(UnmaskOptions, frozen=True, kw_only=True):
    """Options of the decoder `llada`.

    Attributes:
        steps: forwards for the whole response (None: its length), a multiple of the number of
            blocks.
        cfg_scale: weight of classifier-free guidance; above 0 a step has a second row, the prompt
            masked.
        remasking: which predictions stay.
    """

    steps: Positive | None = None
    cfg_scale: NotNegative = 0.0
    remasking: Literal["low_confidence", "random"] = "low_confidence"

    def check(self) -> None:
        if self.cfg_scale and self.cache != "none":
            raise ValueError(
                f"cfg_scale={self.cfg_scale} runs two rows, cache={self.cache!r} one; use"
                " cache='none'"
            )


def decode_llada(request: Request, options: LLaDAOptions) -> None:
    """Fill the response.

    Raises:
        ValueError: steps that do not fit its length and blocks.
    """
    backbone = request.backbone
    mask_id = request.mask_id
    given_1L = request.x_1L != mask_id
    choice = Choice(request, options)

    def guided(x_1L: Tensor, position_N: Tensor) -> Candidates:
        rows_2L = torch.cat([x_1L, x_1L.masked_fill(given_1L, mask_id)])
        conditional_NV, unconditional_NV = backbone.logits(rows_2L, positions=position_N)
        return choice(
            unconditional_NV + (options.cfg_scale + 1) * (conditional_NV - unconditional_NV)
        )

    per_block = steps_per_block(request.length, request.block_length, options.steps)
    rule = Even(per_block, request.sampler if options.remasking == "random" else None)
    unmask(choice, rule, guided if options.cfg_scale else None)


class Candidates(NamedTuple):
    """What a step proposes at its N candidates: tokens (N,) and confidences (N,), on the CPU, and
    the logits (N, V) of these, where the model is."""

    token_N: Tensor
    confidence_N: Tensor
    logits_NV: Tensor


Propose = Callable[[Tensor, Tensor], Candidates]  # from x_1L and position_N


class Rule(Protocol):
    """How a step commits: which candidates come first, and how many of them."""

    def steps(self, masked: int) -> int:
        """The most steps for a block with this many masks."""

    def select(self, step: int, position_N: Tensor, candidates: Candidates) -> tuple[Tensor, int]:
        """Scores (N,) of the candidates at positions (N,), the highest to be committed first; how
        many to commit."""


class Even:
    """The official rule: quotas as even as can be, ranked by confidence, or at random if a sampler
    is given."""

    def __init__(self, steps: int, random: Sampler | None = None) -> None:
        self._steps = steps
        self._random = random
        self._quotas: list[int] = []

    def steps(self, masked: int) -> int:
        self._quotas = quotas(masked, self._steps)
        return self._steps

    def select(self, step: int, position_N: Tensor, candidates: Candidates) -> tuple[Tensor, int]:
        score_N = candidates.confidence_N
        if self._random is not None:
            score_N = self._random.order(len(score_N)).to(score_N)
        return score_N, self._quotas[step]


class Choice:
    """The official choice of a token at every candidate, and the confidence in it.

    Args:
        request: the response.
        options: those about EOS, and the cache.
        exact: confidences near 1 are told apart, as in float64; else the softmax has the logits'
            dtype.

    Attributes:
        cache: where the logits of `propose` come from.
    """

    def __init__(self, request: Request, options: EndOptions, exact: bool = False) -> None:
        self.request = request
        self.options = options
        self._exact = exact
        self.cache = make_cache(
            getattr(options, "cache", "none"), request.backbone, request.x_1L.shape[1]
        )

    def propose(self, x_1L: Tensor, position_N: Tensor) -> Candidates:
        """What one forward of the sequence proposes at its candidates."""
        return self(self.cache.logits(x_1L, position_N))

    def __call__(self, logits_NV: Tensor) -> Candidates:
        """The candidates of logits (N, V). A mask that is chosen counts towards the step's quota,
        and remains."""
        backbone = self.request.backbone
        temperature = self.request.temperature
        logits_NV = hold_ends_back(logits_NV, self.options, backbone)
        token_N = sample(logits_NV, temperature, self.request.sampler, options=self.options)
        logits_NV = without(logits_NV, unranked_ends(self.options, backbone, temperature))
        if self._exact:
            confidence_N = softmax_at(logits_NV, token_N)
        else:
            confidence_N = probs_at(torch.softmax(logits_NV, -1), token_N)
        token_N, confidence_N = to_host(token_N, confidence_N)
        return Candidates(token_N, confidence_N, logits_NV)


def unmask(
    choice: Choice,
    rule: Rule,
    propose: Propose | None = None,
    block_only: bool = False,
    finish: Callable[[], bool] | None = None,
) -> None:
    """LLaDA's loop: block after block, one forward and one commit a step.

    Args:
        choice: of tokens.
        rule: which candidates a step commits.
        propose: gives a step's candidates (None: the choice's forward).
        block_only: masks that an earlier block left are no candidates; with a cache they never are
            after a block's first step.
        finish: called before a step commits; True if it has filled the response, which ends
            decoding.
    """
    request = choice.request
    cache = choice.cache
    propose = choice.propose if propose is None else propose
    x_1L = request.x_1L
    length = x_1L.shape[1]
    for block in request.blocks():
        end = block.stop
        cache.begin_block(block.start, end)
        for step in range(rule.steps(len(request.masked(block.start, end)))):
            first = block.start if block_only else cache.readable.start
            position_N = request.masked(first, end)
            if len(position_N) == 0:
                break
            candidates = propose(x_1L, position_N)
            if finish is not None and finish():
                return
            score_N, count = rule.select(step, position_N, candidates)
            best = highest(length, position_N, score_N.cpu(), min(count, len(position_N)))
            token_N, confidence_N, _ = candidates
            request.commit(position_N[best], token_N[best], confidence_N[best], "unmasked")
            if choice.options.stop_at_eos and fill_after_eos(request):
                return
        request.finish(block)


def highest(length: int, position_N: Tensor, score_N: Tensor, count: int) -> Tensor:
    """Indices (count,) of the highest scores, those of ascending positions in a row of `length`."""
    # Ranked over the whole row, as the official sampler does: equal confidences then fall the same
    # way.
    score_L = torch.full((length,), -torch.inf, dtype=score_N.dtype)
    score_L[position_N] = score_N
    return torch.searchsorted(position_N, score_L.topk(count).indices)


def steps_per_block(length: int, block_length: int, steps: int | None) -> int:
    """Steps of one block.

    Args:
        length: tokens of the response.
        block_length: tokens of a block.
        steps: of the response (None: as many as its tokens).

    Raises:
        ValueError: steps that are no multiple of the blocks, or more than tokens.
    """
    blocks = length // block_length
    steps = length if steps is None else steps
    if steps < blocks or steps % blocks or steps > length:
        raise ValueError(
            f"steps={steps} must be a multiple of the {blocks} blocks and at most the response"
            f" length {length}"
        )
    return steps // blocks
