"""What a decoder did: its windows and costs, whoever observes it commit, and the log of a whole
response."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, get_args, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

Ints = Sequence[int]
Floats = Sequence[float]
# How a token came: unmasked by a step of LLaDA's loop, an accepted draft, one known to be accepted
# (the target gave its draft probs, so that no row ran for it), the correction of a rejected one,
# drawn from its target without speculation, or filled in after an EOS.
How = Literal["unmasked", "accepted", "known", "corrected", "drawn", "filled"]


def ways_of(count: int, accepted: int, last: How) -> list[How]:
    """How the tokens of a window came: accepted drafts, and the others after them."""
    return ["accepted" if number < accepted else last for number in range(count)]


class Rejected(NamedTuple):
    """Drafts of a window that were not accepted: the first was rejected, those after it were not
    judged.

    Attributes:
        positions: indices into the sequence.
        tokens: the drafts.
        draft_probs: (N,), of the tokens at temperature 1.
        target_probs: the same of the target.
    """

    positions: Sequence[int]
    tokens: Sequence[int]
    draft_probs: Tensor | Sequence[float]
    target_probs: Tensor | Sequence[float]


class Observer(Protocol):
    """Sees every change to the response, in order, as decoders commit through their request."""

    def committed(self, positions: Ints, tokens: Ints, probs: Floats, how: Sequence[How]) -> None:
        """Tokens that are now at positions of the response, with the probability that the decoder
        gave each.

        A token may be the mask, where a decoder's choice leaves it. probs: NaN where there is none
        (filled).
        """

    def remasked(self, positions: Ints, tokens: Ints) -> None:
        """Positions of the response that are corrupted again, with the tokens that are there now:
        masks, or noise."""


@runtime_checkable
class FullObserver(Observer, Protocol):
    """An observer of forwards, windows and rejected drafts too."""

    def began(self, forwards: Callable[[], int]) -> None:
        """A response begins, maybe once more; `forwards` counts the calls of its models so far."""

    def rejected(
        self, positions: Ints, tokens: Ints, draft_probs: Floats, target_probs: Floats
    ) -> None:
        """Drafts at positions of the response that were not accepted, as `Rejected` says."""

    def recorded(self, window: Window) -> None:
        """A window, once its tokens are committed and its other drafts rejected."""


@dataclass(frozen=True)
class Window:
    """One speculative window.

    Attributes:
        step: diffusion step, from 0.
        round: number of the window in that step and block, from 0.
        start: index of its first position in the response.
        proposed: verified draft tokens.
        accepted: those of them that stay.
        committed: resolved positions, a corrected one among them.
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

    The draft_ numbers are the part that gave draft probs, by whichever model, and all calls of
    models that are not the request's.

    Attributes:
        forwards: calls of a model (NFE).
        rows: their sequences.
        token_forwards: tokens that went through it.
        cached_tokens: tokens with keys and values from a cache.
        changed_forwards: those of models whose modules were changed since they were loaded, so that
            the model's own code ran.
        flop: as backbones/flop.py counts them, without what CUDA graphs fill up; None where shapes
            are not known, as for mixtures of experts.
        seconds: of the decoder; cpu_seconds and device_seconds too, as clock.Spent has them.
        draw_seconds: the part of seconds in draws of tokens, by clock.DrawTimer; None at
            temperature 0.
        block_seconds: tokens of the response after each block, and the seconds until then; empty
            where a decoder of several blocks does not take them one by one.
        windows: the speculative ones.
    """

    forwards: int = 0
    rows: int = 0
    token_forwards: int = 0
    cached_tokens: int = 0
    draft_forwards: int = 0
    draft_rows: int = 0
    draft_token_forwards: int = 0
    changed_forwards: int = 0
    flop: int | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    device_seconds: float | None = None
    draw_seconds: float | None = None
    block_seconds: list[tuple[int, float]] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)


@dataclass(frozen=True)
class Decoded:
    """A response: tokens, LongTensor (gen_length,) on the CPU, and its trace."""

    tokens: Tensor
    trace: Trace


# of costs, in the place of .json, beside OpenCompass's predictions of a data set
SIDE_FILE = ".costs.jsonl"
NO_WINDOW = -1
# What an event is, by number: a commit, a re-mask, a rejected draft, or one after it, which was not
# judged. Records hold the numbers: new kinds go to the end.
KINDS: tuple[str, ...] = (*get_args(How), "remasked", "rejected", "discarded")
NUMBER = {kind: number for number, kind in enumerate(KINDS)}


class EventLog:
    """An observer (trace.FullObserver) that keeps every event of a response, a list for each
    column.

    Attributes:
        kind: number in KINDS.
        forward: calls of the models so far.
        step: the diffusion step of a window; without windows, the number of forwards that had
            committed before.
        window: its number in the response, or NO_WINDOW.
        position: index in the response.
        token: the one committed or drafted.
        prob: of a commit the decoder's, of a rejection the draft's; NaN without one.
        target_prob: the target's, of the drafts that were not accepted alone.
    """

    def __init__(self) -> None:
        self.began(lambda: 0)

    def began(self, forwards: Callable[[], int]) -> None:
        """Forget all that was logged: a response begins."""
        self._forwards = forwards
        self.kind = list[int]()
        self.forward = list[int]()
        self.step = list[int]()
        self.window = list[int]()
        self.position = list[int]()
        self.token = list[int]()
        self.prob = list[float]()
        self.target_prob = list[float]()
        self._windows = 0
        self._commits = 0
        self._current_step = 0
        self._settled_at = -1  # the forward of the last commit without a window

    def __len__(self) -> int:
        return len(self.kind)

    def committed(self, positions: Ints, tokens: Ints, probs: Floats, how: Sequence[How]) -> None:
        """Tokens that are now at positions of the response."""
        self._add([NUMBER[way] for way in how], positions, tokens, probs)

    def remasked(self, positions: Ints, tokens: Ints) -> None:
        """Positions of the response that are corrupted again."""
        self._settle()
        count = len(positions)
        self._add([NUMBER["remasked"]] * count, positions, tokens, [math.nan] * count)
        self._settle()

    def rejected(
        self, positions: Ints, tokens: Ints, draft_probs: Floats, target_probs: Floats
    ) -> None:
        """Drafts that were not accepted: the first was rejected, the rest not judged."""
        kinds = [NUMBER["rejected"], *[NUMBER["discarded"]] * (len(positions) - 1)]
        self._add(kinds, positions, tokens, draft_probs)
        self.target_prob += target_probs

    def recorded(self, window: Window) -> None:
        """The events since the last window, re-mask or other forward are those of this window."""
        new = len(self) - len(self.step)
        self.step += [window.step] * new
        self.window += [self._windows] * new
        self._current_step = window.step
        self._windows += 1

    def columns(self) -> Iterator[tuple[str, list[int] | list[float]]]:
        """The columns by name, all but target_prob of one length."""
        self._settle()
        for name, column in vars(self).items():
            if isinstance(column, list):
                yield name, column

    def _add(self, kinds: Ints, positions: Ints, tokens: Ints, probs: Floats) -> None:
        forward = self._forwards()
        if len(self) > len(self.step) and self.forward[-1] != forward:
            self._settle()
        self.kind += kinds
        self.forward += [forward] * len(kinds)
        self.position += positions
        self.token += tokens
        self.prob += probs

    def _settle(self) -> None:
        """The events that no window has taken have none."""
        new = len(self) - len(self.step)
        if new and not self._windows:
            self._commits += self._settled_at not in (-1, self.forward[-1])
            self._settled_at = self.forward[-1]
            self._current_step = self._commits
        self.step += [self._current_step] * new
        self.window += [NO_WINDOW] * new
