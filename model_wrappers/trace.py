"""What a decoder did: its speculative windows and what they cost."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Window:
    """One speculative window.

    step: diffusion step, from 0. round: which window of that step (and block), from 0. start: index of its first
    position in the response. proposed: draft tokens verified. accepted: how many of them were kept. committed:
    positions that were resolved, accepted ones and a corrected one.
    """

    step: int
    round: int
    start: int
    proposed: int
    accepted: int
    committed: int


@dataclass
class Trace:
    """The cost of one response, counted in the backbone's ledger alone.

    forwards: calls of a model; rows: sequences pushed through, summed over calls; token_forwards: tokens pushed
    through. The draft_ numbers are the part of these three that was spent on draft laws, by whichever model gives them.
    seconds: wall-clock of the decoder alone, the device synchronised on both sides.
    """

    forwards: int = 0
    rows: int = 0
    token_forwards: int = 0
    draft_forwards: int = 0
    draft_rows: int = 0
    draft_token_forwards: int = 0
    seconds: float = 0.0
    windows: list[Window] = field(default_factory=list)


@dataclass(frozen=True)
class Decoded:
    """A response: tokens, LongTensor (gen_length,) on the CPU, and its trace."""

    tokens: torch.Tensor
    trace: Trace
