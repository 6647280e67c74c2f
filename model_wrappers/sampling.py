"""Rules that decoders share, as pure functions, and the sampler that all their randomness comes
from.

Tensors as wide as the vocabulary stay on the model's device. A decoder decides on the host, by the
few numbers a call that `transfers.to_host` brings. Shapes: N positions, W window, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from model_wrappers.clock import DrawTimer
from model_wrappers.options import EndOptions, SampleOptions

if TYPE_CHECKING:
    from model_wrappers.backbones.protocol import Ledger

# Uniforms that are drawn, and brought to a device, at once: a transfer for each call would be a
# wait.
BLOCK = 4096
ALL_TOKENS = SampleOptions()


class Sampler:
    """Draws for a decoder. Tests and the audit replace it by one that walks through every branch.

    Uniforms are made on the host, whatever the model's device, so that a seed gives the same ones
    everywhere, alone and in a batch.

    Attributes:
        timer: measures the draws of the present response (None: they are not timed). It is an
            attribute of the class, as a sampler that replaces this one need not call its
            `__init__`.

    Raises:
        ValueError: torch does not accept the seed.
    """

    timer: DrawTimer | None = None

    def __init__(self, seed: int) -> None:
        try:
            self._generator = torch.Generator().manual_seed(seed)
        except (RuntimeError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"seed={seed!r} must be a whole number of 64 bits") from error
        self._uniform_U = torch.empty(0)
        self._used = 0
        self._copies: dict[torch.device, Tensor] = {}

    def timed(self) -> AbstractContextManager[None]:
        """A context manager whose seconds all count as draws; it may be nested."""
        return nullcontext() if self.timer is None else self.timer

    def uniforms(self, count: int, device: torch.device) -> Tensor:
        """The next uniforms in [0, 1), float64 (count,) on a device."""
        if self._used + count > len(self._uniform_U):
            size = max(BLOCK, count)
            self._uniform_U = torch.rand(size, generator=self._generator, dtype=torch.float64)
            self._used = 0
            self._copies = {}
        if device not in self._copies:
            self._copies[device] = self._uniform_U.to(device, non_blocking=True)
        begin = self._used
        self._used += count
        return self._copies[device][begin : self._used]

    def tokens(self, probs_NV: Tensor, needed_1: Tensor | None = None) -> Tensor:
        """One token from each of N distributions: LongTensor (N,) on their device.

        Args:
            probs_NV: the distributions.
            needed_1: (1,), how many of the first rows are used (None: all). The tokens of the other
                rows may be any.
        """
        # This sampler draws all rows: to skip some it would have to wait for needed_1 on the host.
        with self.timed():
            return inverse_cdf(probs_NV, self.uniforms(len(probs_NV), probs_NV.device))

    def accepted(self, ratio_W: Tensor) -> Tensor:
        """The number of drafts accepted from the first on, each with probability min(1, ratio):
        LongTensor (1,)."""
        uniform_W = self.uniforms(len(ratio_W), ratio_W.device)
        return (uniform_W < ratio_W).cumprod(0).sum(0, keepdim=True)

    def noise(self, count: int, vocab_size: int) -> Tensor:
        """Tokens that are uniform over the vocabulary: LongTensor (count,), on the CPU."""
        return torch.randint(vocab_size, (count,), generator=self._generator)

    def order(self, count: int) -> Tensor:
        """A uniformly random permutation of 0 .. count - 1, on the CPU."""
        return torch.randperm(count, generator=self._generator)


def inverse_cdf(probs_NV: Tensor, uniform_N: Tensor) -> Tensor:
    """For each row the token at which the cumulated probability exceeds a uniform, LongTensor
    (N,)."""
    # Not torch.multinomial: drawn on the CPU it needs a copy of all probabilities there, which took
    # over a second for 256 rows (results/LOG.md), and drawn on a device its tokens differ by
    # device.
    cumulated_NV = probs_NV.cumsum(-1, dtype=torch.float64)
    total_N1 = cumulated_NV[:, -1:].contiguous()
    token_N1 = torch.searchsorted(cumulated_NV, uniform_N[:, None] * total_N1, right=True)
    # The product may round up to the total: then it is the last token that has any probability.
    last_N1 = torch.searchsorted(cumulated_NV, total_N1)
    return torch.minimum(token_N1, last_N1)[:, 0]


def token_probs(
    logits_NV: Tensor,
    temperature: float,
    exclude: int | None = None,
    options: SampleOptions = ALL_TOKENS,
) -> Tensor:
    """The probabilities that tokens are drawn with: softmax(logits / T), truncated.

    Args:
        logits_NV: the logits.
        temperature: T; at 0 a row's likeliest token has probability 1.
        exclude: an id that gets probability 0.
        options: top_p and top_k.

    Returns:
        Float64 (N, V).
    """
    if exclude is not None:
        logits_NV = without(logits_NV, [exclude])
    if temperature > 0:
        return torch.softmax(truncated(logits_NV.double() / temperature, options), -1)
    return torch.zeros_like(logits_NV, dtype=torch.float64).scatter_(
        -1, likeliest(logits_NV)[..., None], 1.0
    )


def truncated(logits_NV: Tensor, options: SampleOptions) -> Tensor:
    """Logits (N, V) with -inf at the tokens that top_p and top_k exclude.

    top_p keeps a row's likeliest tokens up to the first with which their sum reaches top_p; top_k
    keeps all tokens at least as likely as the k-th. Both are of the whole distribution, as in
    Dream's `sample_tokens`.
    """
    truncated_NV = logits_NV
    if options.top_p is not None and options.top_p < 1:
        sorted_NV, token_NV = logits_NV.sort(dim=-1, descending=True, stable=True)
        reached_NV = torch.softmax(sorted_NV, -1).cumsum(-1) >= options.top_p
        outside_NV = torch.zeros_like(reached_NV)
        # A token is left out if those before it reach top_p; the first one never is.
        outside_NV.scatter_(-1, token_NV[..., 1:], reached_NV[..., :-1])
        truncated_NV = truncated_NV.masked_fill(outside_NV, -torch.inf)
    if options.top_k is not None and options.top_k < logits_NV.shape[-1]:
        least_N1 = logits_NV.topk(options.top_k, -1).values[..., -1:]
        truncated_NV = truncated_NV.masked_fill(logits_NV < least_N1, -torch.inf)
    return truncated_NV


def without(logits_NV: Tensor, ids: Sequence[int], nats: float = torch.inf) -> Tensor:
    """Logits (..., V) that are lower by `nats` at some ids (default: -inf there).

    The result is a copy, as the backbone may keep the logits.
    """
    if not ids or not nats:
        return logits_NV
    restricted_NV = logits_NV.clone()
    for token in ids:  # one at a time: a list of ids would be a transfer to the device
        restricted_NV.select(-1, token).sub_(nats)
    return restricted_NV


def hold_ends_back(logits_NV: Tensor, options: EndOptions, backbone: Ledger) -> Tensor:
    """Logits (..., V) with EOS and EoT lowered as `logits_eos_inf` and `eos_penalty` say."""
    if options.logits_eos_inf:
        logits_NV = without(logits_NV, [backbone.eos_id])
    return without(logits_NV, backbone.ends, options.eos_penalty)


def unranked_ends(options: EndOptions, backbone: Ledger, temperature: float) -> list[int]:
    """The ids that `confidence_eos_eot_inf` excludes from the softmax that gives confidences."""
    if not options.confidence_eos_eot_inf:
        return []
    # LLaDA's code takes EOS out of other logits there (ML-GSAI/LLaDA#137).
    if options.confidence_eos_eot_inf == "official" and temperature > 0:
        return [end for end in backbone.ends if end == backbone.eot_id]
    return backbone.ends


def likeliest(values_NV: Tensor) -> Tensor:
    """The token of the highest value in each row, the first of equal ones: LongTensor (N,)."""
    return values_NV.max(-1).indices  # on a CPU in half the time that argmax takes


def sample(
    logits_NV: Tensor,
    temperature: float,
    sampler: Sampler,
    needed_1: Tensor | None = None,
    options: SampleOptions = ALL_TOKENS,
) -> Tensor:
    """One token from the distribution of each row: softmax(logits / T), truncated.

    Args:
        logits_NV: the logits.
        temperature: T; at 0 the likeliest token is taken.
        sampler: draws.
        needed_1: as for Sampler.tokens.
        options: top_p and top_k.

    Returns:
        LongTensor (N,).
    """
    if temperature == 0:
        return likeliest(logits_NV)
    with sampler.timed():
        return sampler.tokens(token_probs(logits_NV, temperature, options=options), needed_1)


def probs_at(probs_NV: Tensor, token_N: Tensor) -> Tensor:
    """The probability of one token in each row, (N,)."""
    return probs_NV.gather(1, token_N[:, None])[:, 0]


def softmax_at(logits_NV: Tensor, token_N: Tensor) -> Tensor:
    """softmax(logits) at one token in each row, float64 (N,).

    1 - p is computed as a sum without the token itself. So different confidences near 1 stay
    different, and the ranking of positions does not depend on the shape of a batch, although all
    tensors as wide as the vocabulary are float32.
    """
    exact_NV = logits_NV.float()
    weight_NV = (exact_NV - exact_NV.amax(-1, keepdim=True)).exp_()
    chosen_N1 = weight_NV.gather(1, token_N[:, None])
    others_N1 = weight_NV.scatter_(1, token_N[:, None], 0.0).sum(-1, keepdim=True).double()
    return (chosen_N1 / (chosen_N1 + others_N1))[:, 0]


def best_probs(logits_NV: Tensor) -> Tensor:
    """The probability of the likeliest token of each softmax(logits), float64 (N,)."""
    return softmax_at(logits_NV, likeliest(logits_NV))


def residual(target_NV: Tensor, draft_NV: Tensor) -> Tensor:
    """norm(max(0, pi - rho)), (N, V), the distribution of a corrected token; pi in rows where no
    pi exceeds rho."""
    excess_NV = (target_NV - draft_NV).clamp_min(0)
    total_N1 = excess_NV.sum(-1, keepdim=True)
    # Where pi = rho nothing is rejected, but the row is computed: 0 / 0 must not reach the sampler.
    return torch.where(total_N1 > 0, excess_NV / total_N1, target_NV)


def speculative_accept(
    target_WV: Tensor,
    draft_WV: Tensor,
    draft_W: Tensor,
    sampler: Sampler,
    limit_1: Tensor,
) -> tuple[Tensor, Tensor]:
    """Accept drafts left to right with min(1, pi / rho) and correct the first rejected one (the
    paper's Algorithm 2).

    All of it runs on the device; the host waits only when it reads the result.

    Args:
        target_WV: the targets' probs pi.
        draft_WV: the probs rho that the drafts were drawn from.
        draft_W: LongTensor (W,), the drafts.
        sampler: source of all randomness.
        limit_1: LongTensor (1,), the most positions, from the first on, to resolve.

    Returns:
        The number of accepted drafts, LongTensor (1,), and the window's tokens, LongTensor (W,):
        the accepted drafts, then the correction of the next one, then tokens without meaning.
    """
    with sampler.timed():
        width = len(draft_W)
        index_W = torch.arange(width, device=draft_W.device)
        ratio_W = probs_at(target_WV, draft_W) / probs_at(draft_WV, draft_W)
        # Ratio 0 from the limit on: such a draft is never accepted, nor is a correction used there.
        accepted_1 = sampler.accepted(torch.where(index_W < limit_1, ratio_W, 0.0))
        # If all are accepted there is nothing to correct; the clamp keeps the index valid.
        rejected_1 = accepted_1.clamp(max=width - 1)
        residual_1V = residual(
            target_WV.index_select(0, rejected_1), draft_WV.index_select(0, rejected_1)
        )
        corrected_1 = sampler.tokens(residual_1V, (accepted_1 < limit_1).long())
        return accepted_1, torch.where(index_W == accepted_1, corrected_1, draft_W)


def block_accept(
    target_WV: Tensor,
    draft_WV: Tensor,
    draft_W: Tensor,
    sampler: Sampler,
    limit_1: Tensor,
) -> tuple[Tensor, Tensor]:
    """Accept the drafts of a window jointly, and correct the first rejected one.

    Block verification (Sun et al., arXiv 2403.10444, Algorithm 2): the same output law as
    `speculative_accept`, and in expectation never fewer accepted drafts. Prefix i has weight p_i =
    min(p_(i-1) pi_i / rho_i, 1). Each prefix is accepted independently, and the longest accepted
    one counts, so that a later prefix can make up for an earlier one. Arguments and result are
    those of `speculative_accept`.
    """
    with sampler.timed():
        width = len(draft_W)
        prefix_W = torch.arange(1, width + 1, device=draft_W.device)  # drafts of each prefix
        weights = [target_WV.new_ones(())]
        for ratio in probs_at(target_WV, draft_W) / probs_at(draft_WV, draft_W):
            weights.append((weights[-1] * ratio).clamp(max=1.0))
        weight_N = torch.stack(weights)  # p_0 .. p_W
        excess_WV = (weight_N[:-1, None] * target_WV - draft_WV).clamp_min(0)
        excess_W = excess_WV.sum(-1)
        # 0 / 0, where pi = rho and the weight is 1: no chance is needed, and 0 is taken.
        chance_W = (excess_W / (excess_W + 1 - weight_N[:-1])).nan_to_num()
        # Prefix i is judged by the excess at position i + 1. The last verified prefix has no such
        # position: its chance is its weight.
        chance_W = torch.cat([chance_W[1:], weight_N[-1:]])
        chance_W = torch.where(prefix_W == limit_1, weight_N[1:], chance_W)
        chance_W = chance_W.masked_fill(prefix_W > limit_1, 0.0)
        accepted_W = sampler.tokens(torch.stack([1 - chance_W, chance_W], -1))
        accepted_1 = (accepted_W * prefix_W).amax(0, keepdim=True)
        rejected_1 = accepted_1.clamp(max=width - 1)
        residual_1V = excess_WV.index_select(0, rejected_1)
        residual_1V = residual_1V / residual_1V.sum(-1, keepdim=True)
        corrected_1 = sampler.tokens(residual_1V, (accepted_1 < limit_1).long())
        return accepted_1, torch.where(prefix_W - 1 == accepted_1, corrected_1, draft_W)


def greedy_accept(best_W: Tensor, draft_W: Tensor, limit_1: Tensor) -> tuple[Tensor, Tensor]:
    """Accept drafts as long as they equal the target's likeliest tokens best_W, (W,).

    This is `speculative_accept` at temperature 0; the first draft that differs is corrected by
    best_W, which is returned as the window's tokens.
    """
    accepted_1 = (best_W == draft_W).cumprod(0).sum(0, keepdim=True)
    return torch.minimum(accepted_1, limit_1), best_W


def in_doubt(best_W: Tensor, below: float | None, fresh: bool) -> Tensor:
    """Which positions of a window need a new context pass first, bool (W,).

    Args:
        best_W: probability of the likeliest token at each position, at temperature 1.
        below: a position with a lower probability is in doubt (None: none is).
        fresh: whether the first position's context is up to date, so that it is not in doubt.
    """
    doubtful_W = torch.zeros_like(best_W, dtype=torch.bool) if below is None else best_W < below
    if fresh:
        doubtful_W[:1].fill_(False)  # an item that is set would wait for the device
    return doubtful_W


def quotas(count: int, steps: int) -> list[int]:
    """The number of positions that each step commits: even, with the remainder in the first
    steps."""
    base, extra = divmod(count, steps)
    return [base + (step < extra) for step in range(steps)]
