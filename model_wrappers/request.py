"""What every decoder is given, whatever its options, and the one way in which it fills the response."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from model_wrappers.backbones.protocol import Ledger
from model_wrappers.sampling import Sampler
from model_wrappers.trace import FullObserver, How, Observer, Rejected, Window


@dataclass(frozen=True)
class Request:
    """One response to decode.

    backbone: the model, in the ledger; draft: the model of draft probs, in a ledger of its own (it may be the same
    model). x_1L: LongTensor (1, L), prompt and response; decoders read it and change it through `commit` and `remask`
    alone. start: index of the response's first token. block_length: it divides the response. temperature: 0 is greedy.
    sampler: what all randomness goes through. observer: told of every change. windows: those that `record` was given.
    given: positions that were given, prompt and all; they are never masked again.
    """

    backbone: Ledger
    draft: Ledger
    x_1L: torch.Tensor
    start: int
    block_length: int
    temperature: float
    sampler: Sampler
    observer: Observer | None = None
    windows: list[Window] = field(default_factory=list)
    given: frozenset[int] = frozenset()

    @property
    def mask_id(self) -> int:
        """The mask's id."""
        return self.backbone.mask_id

    @property
    def length(self) -> int:
        """Tokens of the response."""
        return self.x_1L.shape[1] - self.start

    @property
    def block_ends(self) -> range:
        """Index after the last token of every block."""
        return range(self.start + self.block_length, self.x_1L.shape[1] + 1, self.block_length)

    def commit(
        self,
        positions: torch.Tensor | Sequence[int],
        tokens: torch.Tensor | Sequence[int] | int,
        probs: torch.Tensor | Sequence[float] | None,
        how: How | Sequence[How],
    ) -> None:
        """Put tokens at positions of the sequence.

        positions: LongTensor (N,) or a list, indices into x_1L. tokens: (N,), or one token for all. probs: (N,), the
        probability that the decoder gave each token; None if it gave none. how: how they came, one word or (N,).
        """
        self.x_1L[0, positions] = torch.as_tensor(tokens, device=self.x_1L.device)
        if self.observer is not None:
            changed = [at - self.start for at in torch.as_tensor(positions).tolist()]
            given = [math.nan] * len(changed) if probs is None else _listed(probs)
            ways: Sequence[How] = [how] * len(changed) if isinstance(how, str) else how
            self.observer.committed(changed, self.x_1L[0, positions].tolist(), given, ways)

    def remask(self, positions: Sequence[int], tokens: torch.Tensor | None = None) -> None:
        """Corrupt positions of the sequence again: to the mask, or to `tokens` (N,) drawn from another kernel.

        Raises ValueError for positions that were given.
        """
        given = self.given.intersection(positions)
        if given:
            raise ValueError(f"positions {sorted(given)} of the sequence were given; a decoder must not mask them")
        self.x_1L[0, positions] = self.mask_id if tokens is None else tokens
        if self.observer is not None:
            self.observer.remasked([at - self.start for at in positions], self.x_1L[0, positions].tolist())

    def reject(self, drafts: Callable[[], Rejected]) -> None:
        """Note the drafts of a window that were not accepted, before the window itself.

        drafts: gives them; called if an observer wants them, so that their probabilities cost nothing where none does.
        """
        if self.observer is not None and isinstance(self.observer, FullObserver):
            positions, tokens, draft_probs, target_probs = drafts()
            at = [position - self.start for position in positions]
            self.observer.rejected(at, tokens, _listed(draft_probs), _listed(target_probs))

    def record(self, window: Window) -> None:
        """Note a speculative window. Raises ValueError for counts that cannot be."""
        if min(vars(window).values()) < 0 or window.accepted > window.proposed:
            raise ValueError(f"{window} cannot be: it counts from 0, and accepts no more than it proposed")
        self.windows.append(window)
        if self.observer is not None and isinstance(self.observer, FullObserver):
            self.observer.recorded(window)


def _listed(probs: torch.Tensor | Sequence[float]) -> list[float]:
    return [float(prob) for prob in torch.as_tensor(probs).tolist()]
