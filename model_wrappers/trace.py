"""What a decoder did: its speculative windows, what they cost, and whoever watches it commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch

# How a token came: unmasked by a step of LLaDA's loop, an accepted draft, one that was known to be accepted (its draft
# probs were the target's own, so that no row was run for it), the correction of a rejected one, drawn from its target
# alone (no speculation), or filled in behind an EOS.
How = Literal["unmasked", "accepted", "known", "corrected", "drawn", "filled"]


class Rejected(NamedTuple):
    """Drafts of a window that were not accepted: the first was rejected, those after it went unjudged.

    positions: indices into the sequence. draft_probs, target_probs: (N,), what draft and target give each of the tokens
    at temperature 1.
    """

    positions: Sequence[int]
    tokens: Sequence[int]
    draft_probs: torch.Tensor | Sequence[float]
    target_probs: torch.Tensor | Sequence[float]


class Observer(Protocol):
    """Told of every change to the response, in order, as decoders commit through their request."""

    def committed(
        self, positions: Sequence[int], tokens: Sequence[int], probs: Sequence[float], how: Sequence[How]
    ) -> None:
        """Tokens that are now at positions of the response, with the probability that the decoder gave each.

        A token may be the mask, where a decoder's choice leaves it. probs: NaN where there is none (filled).
        """

    def remasked(self, positions: Sequence[int], tokens: Sequence[int]) -> None:
        """Positions of the response that are corrupted again, with the tokens that are there now: masks, or noise."""


@runtime_checkable
class FullObserver(Observer, Protocol):
    """An observer that is told of forwards, windows and rejected drafts too."""

    def began(self, forwards: Callable[[], int]) -> None:
        """A response begins, maybe once more; `forwards` counts the calls of its models so far."""

    def rejected(
        self,
        positions: Sequence[int],
        tokens: Sequence[int],
        draft_probs: Sequence[float],
        target_probs: Sequence[float],
    ) -> None:
        """Drafts at positions of the response that were not accepted, as `Rejected` says."""

    def recorded(self, window: Window) -> None:
        """A window, once its tokens are committed and its other drafts rejected."""


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

    forwards: calls of a model (NFE); rows: sequences that went through it, summed over calls; token_forwards: tokens
    that did; cached_tokens: tokens whose keys and values were read from a cache instead. The draft_ numbers are the
    part of these that gave draft probs, by whichever model. seconds: wall-clock of the decoder alone, the device
    synchronised on both sides. block_seconds: tokens of the response that stood after each block, and the seconds until
    then; empty where a decoder of several blocks does not take them one by one.
    """

    forwards: int = 0
    rows: int = 0
    token_forwards: int = 0
    cached_tokens: int = 0
    draft_forwards: int = 0
    draft_rows: int = 0
    draft_token_forwards: int = 0
    seconds: float = 0.0
    block_seconds: list[tuple[int, float]] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)


@dataclass(frozen=True)
class Decoded:
    """A response: tokens, LongTensor (gen_length,) on the CPU, and its trace."""

    tokens: torch.Tensor
    trace: Trace
