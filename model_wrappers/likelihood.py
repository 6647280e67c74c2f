"""Log-likelihoods of an answer to a prompt, for multiple choice: estimated for diffusion models,
exact for others.

A masked diffusion model gives a lower bound: l of the A answer tokens are masked, l uniform from 1
to A, and the bound is the negative expectation of A / l times the summed cross-entropy of the
masked tokens (Nie et al., arXiv 2502.09992, Eq. 14; the draws are those of the official
`get_log_likelihood`). For a block model it is a sum over blocks, with earlier blocks clean. An
autoregressive model has the exact value in one call.
Shapes: P prompt, A answer, R rows of a call, V vocabulary.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from model_wrappers.backbones.blocks import BlockLedger, ledgers
from model_wrappers.backbones.model import Backbone
from model_wrappers.backbones.protocol import Ledger

DRAWS = 128  # the official default; one is enough where an answer is a single token
ROWS = 16  # rows of a call; their numbers of masks are spread evenly over the answer's length


@dataclass(frozen=True)
class Likelihood:
    """An answer's log-likelihood and its cost.

    Attributes:
        value: the log-likelihood, in nats.
        seconds: wall-clock time.
        forwards: calls of the model.
        rows: sequences in these calls.
        token_forwards: tokens in these calls.
    """

    value: float
    seconds: float
    forwards: int
    rows: int
    token_forwards: int


@torch.inference_mode()
def log_likelihood(
    backbone: Backbone,
    prompt_P: Tensor,
    answer_A: Tensor,
    seed: int = 0,
    draws: int = DRAWS,
) -> Likelihood:
    """The log-likelihood of an answer to a prompt.

    Args:
        backbone: the model.
        prompt_P: LongTensor (P,) on the CPU.
        answer_A: LongTensor (A,) on the CPU.
        seed: seed of the random masks.
        draws: number of random masks; a remainder of the division by ROWS is not drawn, as in the
            official code.

    Raises:
        ValueError: the answer is empty, or the model denoises random tokens and has no mask.
    """
    start = len(prompt_P)
    blocks = backbone.blocks
    x_1L = torch.cat([prompt_P, answer_A])[None]
    causal = blocks is not None and blocks.causal
    if not len(answer_A) or (causal and not start):
        raise ValueError("an answer needs a token, and of an autoregressive model one before it")
    if blocks is not None and not causal and not blocks.masks:
        raise ValueError(f"{backbone.name} denoises random tokens: it has no likelihood by masks")
    start_time = time.perf_counter()
    ledger, _ = ledgers(backbone, backbone, start, blocks)
    generator = torch.Generator().manual_seed(seed)
    if causal:
        value = _exact(ledger, x_1L, start)
    else:
        rows = min(ROWS, draws)
        value = sum(
            _estimate(ledger, x_1L[:, :end], begin, draws // rows, rows, generator)
            for begin, end in _parts(ledger, start, x_1L.shape[1])
        )
    ledger.check_logits(ledger)
    seconds = time.perf_counter() - start_time
    return Likelihood(value, seconds, ledger.calls, ledger.rows, ledger.tokens)


def masked_counts(length: int, rows: int, generator: torch.Generator) -> Tensor:
    """The number of masked tokens, of `length`, in each row, LongTensor (R,).

    The first is uniform from 1 to `length`; the others follow it at even distances, cyclically.
    """
    first = int(torch.randint(1, length + 1, (), generator=generator))
    spread = torch.linspace(float(first), first + (rows - 1) * (length / rows), steps=rows)
    return (torch.round(spread).long() - 1) % length + 1


def _parts(ledger: Ledger, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Begin and end of the parts that are masked at a time: the whole answer, or for a block model
    its part of each block."""
    if not isinstance(ledger, BlockLedger):
        yield start, end
        return
    while start < end:
        part_end = min(end, ledger.grid.end(start))
        yield start, part_end
        start = part_end


def _estimate(
    ledger: Ledger,
    x_1L: Tensor,
    begin: int,
    calls: int,
    rows: int,
    generator: torch.Generator,
) -> float:
    """The estimated log-likelihood of the tokens from `begin` on, given all before them."""
    length = x_1L.shape[1] - begin
    total = 0.0
    read_A = torch.arange(begin, x_1L.shape[1])
    for _ in range(calls):
        counts_R = masked_counts(length, rows, generator)
        # In each row as many masks as its count, shuffled over the answer.
        first_RA = torch.arange(length).expand(rows, -1) < counts_R[:, None]
        masked_RA = torch.stack(
            [row_A[torch.randperm(length, generator=generator)] for row_A in first_RA]
        )
        x_RL = x_1L.repeat(rows, 1)
        x_RL[:, begin:][masked_RA] = ledger.mask_id
        logits_RAV = ledger.logits(x_RL, positions=read_A).float()
        target_RA = x_1L[:, begin:].expand(rows, -1).to(logits_RAV.device, non_blocking=True)
        losses_RA = F.cross_entropy(logits_RAV.transpose(1, 2), target_RA, reduction="none").cpu()
        # Eq. 14: each row's masked losses, divided by the share of tokens that are masked.
        total += float((losses_RA * masked_RA * (length / counts_R)[:, None]).sum()) / rows
    return -total / calls


def _exact(ledger: Ledger, x_1L: Tensor, start: int) -> float:
    """The sum of the answer's log-probabilities by an autoregressive model."""
    # Logits at i - 1 predict token i: those of the answer begin one position before it.
    length = x_1L.shape[1]
    position_L = torch.arange(length)
    visible_LL = position_L <= position_L[:, None]
    read_A = position_L[start - 1 : -1]
    logits_1AV, _ = ledger.extend(x_1L, position_L, read_A, visible_NK=visible_LL)
    answer_A = x_1L[0, start:].to(logits_1AV.device, non_blocking=True)
    return -float(F.cross_entropy(logits_1AV[0].float(), answer_A, reduction="sum"))
