"""What a decoder did: its windows and costs, the observers of its changes, and the log of all
events of a response."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, get_args, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

Ints = Sequence[int]
Floats = Sequence[float]
# How a token came about: unmasked by a step of LLaDA's loop; an accepted draft; a draft known to be
# accepted, as its probs were the target's own and no row ran for it; the correction of a rejected
# draft; drawn from its target without speculation; or filled in after an EOS.
CommitKind = Literal["unmasked", "accepted", "known", "corrected", "drawn", "filled"]


def commit_kinds(count: int, accepted: int, last: CommitKind) -> list[CommitKind]:
    """How each of a window's `count` tokens came about: accepted drafts first, then `last`."""
    return ["accepted" if number < accepted else last for number in range(count)]


class Rejected(NamedTuple):
    """The drafts of a window that were not accepted.

    The first one was rejected; the others come after it and were not judged.

    Attributes:
        positions: indices into the sequence.
        tokens: the drafts.
        draft_probs: (N,), the drafts' probabilities by the draft model, at temperature 1.
        target_probs: (N,), the drafts' probabilities by the target, at temperature 1.
    """

    positions: Sequence[int]
    tokens: Sequence[int]
    draft_probs: Tensor | Sequence[float]
    target_probs: Tensor | Sequence[float]


class Observer(Protocol):
    """An observer of every change to the response, in order."""

    def committed(
        self, positions: Ints, tokens: Ints, probs: Floats, how: Sequence[CommitKind]
    ) -> None:
        """Tokens were committed at positions of the response.

        Args:
            positions: indices in the response.
            tokens: the tokens; one may be the mask, if the decoder chose it.
            probs: the probability that the decoder gave each token, NaN if it gave none.
            how: how each token came about.
        """

    def remasked(self, positions: Ints, tokens: Ints) -> None:
        """Positions of the response were corrupted again; tokens are what is there now, masks or
        noise."""


@runtime_checkable
class FullObserver(Observer, Protocol):
    """An observer that is also shown forwards, windows and rejected drafts."""

    def began(self, forwards: Callable[[], int]) -> None:
        """A response begins, or begins again. `forwards()` is the number of its model calls so
        far."""

    def rejected(
        self, positions: Ints, tokens: Ints, draft_probs: Floats, target_probs: Floats
    ) -> None:
        """Drafts at positions of the response were not accepted (see `Rejected`)."""

    def recorded(self, window: Window) -> None:
        """A window is complete: its tokens were committed and its other drafts rejected before."""


@dataclass(frozen=True)
class Window:
    """One speculative window.

    Attributes:
        step: number of its diffusion step, from 0.
        round: number of the window in its step and block, from 0.
        start: index of its first position in the response.
        proposed: number of verified drafts.
        accepted: number of accepted drafts.
        committed: number of resolved positions, a corrected one included.
    """

    step: int
    round: int
    start: int
    proposed: int
    accepted: int
    committed: int


@dataclass
class Trace:
    """The cost of one response, as counted by the ledgers of its models.

    All counts include the draft_ ones. These are the calls that gave draft probs, by whichever
    model, and all calls of models that are not the request's.

    Attributes:
        forwards: number of model calls (NFE).
        rows: sequences in these calls.
        token_forwards: tokens in these calls.
        cached_tokens: tokens whose keys and values came from a cache.
        changed_forwards: calls of models whose modules were changed after loading, so that the
            model's own code ran.
        flop: floating-point operations by backbones/flop.py, without the padding of CUDA graphs;
            None if the shapes are not known, as for mixtures of experts.
        seconds: wall-clock seconds of the decoder; cpu_seconds and device_seconds are those of
            clock.Spent.
        draw_seconds: the part of `seconds` in which tokens were drawn (clock.DrawTimer); None at
            temperature 0.
        block_seconds: for each block, the tokens of the response up to its end and the seconds
            until it was finished; empty if a decoder of several blocks does not finish them one by
            one.
        windows: the speculative windows.
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


# The suffix of files of costs; it replaces the .json of OpenCompass's predictions of a data set.
SIDE_FILE = ".costs.jsonl"
NO_WINDOW = -1
# The kinds of events: commits, by how the token came about; re-masks; rejected drafts; and drafts
# after a rejected one, which were not judged. Records hold their numbers, so new kinds go to the
# end.
KINDS: tuple[str, ...] = (*get_args(CommitKind), "remasked", "rejected", "discarded")
NUMBER = {kind: number for number, kind in enumerate(KINDS)}


class EventLog:
    """A FullObserver that keeps all events of a response in columns, one list each.

    Attributes:
        kind: number of the event's kind in KINDS.
        forward: number of model calls before the event.
        step: the diffusion step of the event's window; without windows, the number of forwards that
            had committed before.
        window: number of the event's window in the response, or NO_WINDOW.
        position: index in the response.
        token: the token committed, drafted or put there by a re-mask.
        prob: the decoder's probability of a committed token, or the draft's of a rejected one; NaN
            if there is none.
        target_prob: the target's probability; it has entries only for drafts not accepted.
    """

    def __init__(self) -> None:
        self.began(lambda: 0)

    def began(self, forwards: Callable[[], int]) -> None:
        """A response begins: clear the log."""
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

    def committed(
        self, positions: Ints, tokens: Ints, probs: Floats, how: Sequence[CommitKind]
    ) -> None:
        """Log commits."""
        self._add([NUMBER[kind] for kind in how], positions, tokens, probs)

    def remasked(self, positions: Ints, tokens: Ints) -> None:
        """Log re-masks, which belong to no window."""
        # Before and after, so that a window takes neither them nor events from before them.
        self._settle()
        count = len(positions)
        self._add([NUMBER["remasked"]] * count, positions, tokens, [math.nan] * count)
        self._settle()

    def rejected(
        self, positions: Ints, tokens: Ints, draft_probs: Floats, target_probs: Floats
    ) -> None:
        """Log drafts that were not accepted: the first was rejected, the others not judged."""
        kinds = [NUMBER["rejected"], *[NUMBER["discarded"]] * (len(positions) - 1)]
        self._add(kinds, positions, tokens, draft_probs)
        self.target_prob += target_probs

    def recorded(self, window: Window) -> None:
        """Assign the events since the last window, re-mask or other forward to this window."""
        # step and window are filled in later than the other columns, and so are shorter until then.
        new = len(self) - len(self.step)
        self.step += [window.step] * new
        self.window += [self._windows] * new
        self._current_step = window.step
        self._windows += 1

    def columns(self) -> Iterator[tuple[str, list[int] | list[float]]]:
        """The columns by name. All have the same length, except target_prob."""
        self._settle()
        for name, column in vars(self).items():
            if isinstance(column, list):
                yield name, column

    def _add(self, kinds: Ints, positions: Ints, tokens: Ints, probs: Floats) -> None:
        # A window's events come after one forward; what another forward left has no window.
        forward = self._forwards()
        if len(self) > len(self.step) and self.forward[-1] != forward:
            self._settle()
        self.kind += kinds
        self.forward += [forward] * len(kinds)
        self.position += positions
        self.token += tokens
        self.prob += probs

    def _settle(self) -> None:
        """Give the events that no window has taken a step and no window."""
        # Without any window a step is a forward that commits; its events share the step.
        new = len(self) - len(self.step)
        if new and not self._windows:
            self._commits += self._settled_at not in (-1, self.forward[-1])
            self._settled_at = self.forward[-1]
            self._current_step = self._commits
        self.step += [self._current_step] * new
        self.window += [NO_WINDOW] * new
