"""Every commit, re-mask and rejected draft of a response, in order, with the forward after which it happened."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import get_args

from model_wrappers.trace import How, Window

NO_WINDOW = -1
# What an event is, by number: a token that came in one of the ways of a commit, a position that was corrupted again, a
# draft that was rejected, and one behind it, which nobody judged. New ones go behind, for records hold the numbers.
KINDS: tuple[str, ...] = ("unmasked", "accepted", "known", "corrected", "drawn", "filled")
KINDS += ("remasked", "rejected", "discarded")
assert set(get_args(How)) <= set(KINDS)
NUMBER = {kind: number for number, kind in enumerate(KINDS)}


class EventLog:
    """An observer (trace.FullObserver) that keeps every event of a response, a list for each column.

    kind: number in KINDS. forward: calls of the models so far. window: its number in the response, or NO_WINDOW. step:
    the diffusion step of a window; of decoders without windows how many forwards had committed before. position: index
    in the response. token: the one that is there now, or was drafted. prob: what the decoder gave it at a commit, and
    the draft at a rejection; NaN where nobody gave any. target_prob: what the target gave a draft that was not
    accepted, in the order of these alone.
    """

    def __init__(self) -> None:
        self.began(lambda: 0)

    def began(self, forwards: Callable[[], int]) -> None:
        """Forget all that was logged: a response begins."""
        self._forwards = forwards
        self.kind, self.forward, self.step, self.window = list[int](), list[int](), list[int](), list[int]()
        self.position, self.token = list[int](), list[int]()
        self.prob, self.target_prob = list[float](), list[float]()
        self._windows = self._commits = self._now = 0
        self._settled_at = -1  # the forward of the last commit without a window

    def __len__(self) -> int:
        return len(self.kind)

    def committed(
        self, positions: Sequence[int], tokens: Sequence[int], probs: Sequence[float], how: Sequence[How]
    ) -> None:
        """Tokens that are now at positions of the response."""
        self._add([NUMBER[each] for each in how], positions, tokens, probs)

    def remasked(self, positions: Sequence[int], tokens: Sequence[int]) -> None:
        """Positions of the response that are corrupted again."""
        self._settle()
        self._add([NUMBER["remasked"]] * len(positions), positions, tokens, [math.nan] * len(positions))
        self._settle()

    def rejected(
        self,
        positions: Sequence[int],
        tokens: Sequence[int],
        draft_probs: Sequence[float],
        target_probs: Sequence[float],
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
        self._now, self._windows = window.step, self._windows + 1

    def columns(self) -> Iterator[tuple[str, list[int] | list[float]]]:
        """The columns by name, all but target_prob of one length."""
        self._settle()
        for name in ("kind", "forward", "step", "window", "position", "token", "prob", "target_prob"):
            yield name, getattr(self, name)

    def _add(
        self, kinds: Sequence[int], positions: Sequence[int], tokens: Sequence[int], probs: Sequence[float]
    ) -> None:
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
            self._settled_at, self._now = self.forward[-1], self._commits
        self.step += [self._now] * new
        self.window += [NO_WINDOW] * new
