"""LLaDA: semi-autoregressive blocks, low-confidence remasking (Nie et al., arXiv 2502.09992).

At temperature 0 its tokens equal the official sampler's. LLaDA/2 is `steps = gen_length // 2`.
Decoders that get their logits elsewhere, or commit another number of positions a step, share this
loop (`unmask`) and the choice of tokens (`Choice`). Shapes: L length of prompt and response, N
candidates (masked positions up to the block's end), V vocabulary.
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
    """Options of every decoder that unmasks block by block with one forward a step.

    Attributes:
        cache: which keys and values the steps of a block reuse (see model_wrappers/caches.py).
    """

    cache: CacheName = "none"


class LLaDAOptions(UnmaskOptions, frozen=True, kw_only=True):
    """Options of the decoder `llada`.

    Attributes:
        steps: forwards for the whole response (None: its length), a multiple of the number of
            blocks.
        cfg_scale: weight of classifier-free guidance; above 0 every forward has a second row, in
            which the prompt is masked.
        remasking: which predictions a step commits: the most confident ones, or random ones.
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
        ValueError: the steps do not fit the response's length and blocks.
    """
    backbone = request.backbone
    mask_id = request.mask_id
    given_1L = request.x_1L != mask_id
    choice = Choice(request, options)

    def guided(x_1L: Tensor, position_N: Tensor) -> Candidates:
        rows_2L = torch.cat([x_1L, x_1L.masked_fill(given_1L, mask_id)])
        # The weight of the difference is cfg_scale + 1: in the official form 0 is no guidance.
        conditional_NV, unconditional_NV = backbone.logits(rows_2L, positions=position_N)
        return choice(
            unconditional_NV + (options.cfg_scale + 1) * (conditional_NV - unconditional_NV)
        )

    per_block = steps_per_block(request.length, request.block_length, options.steps)
    rule = Even(per_block, request.sampler if options.remasking == "random" else None)
    unmask(choice, rule, guided if options.cfg_scale else None)


class Candidates(NamedTuple):
    """A step's proposals for its N candidates.

    Tokens (N,) and confidences (N,) are on the CPU; the logits (N, V) are on the model's device.
    """

    token_N: Tensor
    confidence_N: Tensor
    logits_NV: Tensor


Propose = Callable[[Tensor, Tensor], Candidates]  # from x_1L and position_N


class Rule(Protocol):
    """A commit rule: the order in which a step's candidates are committed, and how many are."""

    def steps(self, masked: int) -> int:
        """The most steps that a block with this many masks takes; called when the block begins."""

    def select(self, step: int, position_N: Tensor, candidates: Candidates) -> tuple[Tensor, int]:
        """Rank the candidates at positions (N,).

        Returns:
            Scores (N,), of which the highest are committed first, and how many to commit.
        """


class Even:
    """The official rule: even quotas, filled by confidence, or in random order with a sampler."""

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
            # A random permutation as scores: in their order positions are drawn without
            # replacement.
            score_N = self._random.order(len(score_N)).to(score_N)
        return score_N, self._quotas[step]


class Choice:
    """The official choice of a token for every candidate, and the confidence in it.

    Args:
        request: the response to decode.
        options: the options about EOS, the truncation and the cache.
        exact: True computes confidences that stay different near 1, as float64 ones do; False takes
            the softmax in the logits' dtype.

    Attributes:
        cache: the cached forward that gives `propose` its logits.
    """

    def __init__(self, request: Request, options: EndOptions, exact: bool = False) -> None:
        self.request = request
        self.options = options
        self._exact = exact
        self.cache = make_cache(
            getattr(options, "cache", "none"), request.backbone, request.x_1L.shape[1]
        )

    def propose(self, x_1L: Tensor, position_N: Tensor) -> Candidates:
        """Run one forward of the sequence, and choose at the candidates' positions (N,)."""
        return self(self.cache.logits(x_1L, position_N))

    def __call__(self, logits_NV: Tensor) -> Candidates:
        """Choose a token by each row of logits (N, V).

        The mask may be chosen. It then counts towards the step's quota and remains in the sequence.
        """
        backbone = self.request.backbone
        temperature = self.request.temperature
        logits_NV = hold_ends_back(logits_NV, self.options, backbone)
        token_N = sample(logits_NV, temperature, self.request.sampler, options=self.options)
        # Confidences are of the whole distribution at temperature 1: temperature, top_p and top_k
        # change the tokens drawn, not the way in which positions are ranked.
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
        choice: chooses tokens; it has the request and the cache.
        rule: selects the candidates that a step commits.
        propose: makes a step's candidates (None: `choice.propose`).
        block_only: whether masks that an earlier block left are excluded from the candidates. With
            a cache they are always excluded after a block's first step.
        finish: called before each commit; it returns True if it has filled the whole response,
            which ends decoding.
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
            # In the official sampler a chosen mask stays, and later blocks may still fill it.
            first = block.start if block_only else cache.readable.start
            position_N = request.masked(first, end)
            if len(position_N) == 0:
                break
            candidates = propose(x_1L, position_N)
            if finish is not None and finish():
                return
            score_N, count = rule.select(step, position_N, candidates)
            chosen = highest(length, position_N, score_N.cpu(), min(count, len(position_N)))
            token_N, confidence_N, _ = candidates
            request.commit(position_N[chosen], token_N[chosen], confidence_N[chosen], "unmasked")
            if choice.options.stop_at_eos and fill_after_eos(request):
                return
        request.finish(block)


def highest(length: int, position_N: Tensor, score_N: Tensor, count: int) -> Tensor:
    """Indices into position_N of the `count` highest scores, LongTensor (count,).

    Args:
        length: L, of the sequence.
        position_N: ascending positions in the sequence.
        score_N: their scores.
        count: how many to take.
    """
    # topk is over the whole sequence, as in the official sampler, so that ties between equal
    # confidences are broken as there.
    score_L = torch.full((length,), -torch.inf, dtype=score_N.dtype)
    score_L[position_N] = score_N
    return torch.searchsorted(position_N, score_L.topk(count).indices)


def steps_per_block(length: int, block_length: int, steps: int | None) -> int:
    """The number of steps of one block.

    Args:
        length: tokens of the response.
        block_length: tokens of a block.
        steps: steps of the whole response (None: one a token).

    Raises:
        ValueError: the steps are no multiple of the number of blocks, or exceed the tokens.
    """
    blocks = length // block_length
    steps = length if steps is None else steps
    if steps < blocks or steps % blocks or steps > length:
        raise ValueError(
            f"steps={steps} must be a multiple of the {blocks} blocks and at most the response"
            f" length {length}"
        )
    return steps // blocks
