"""What every decoder is given, whatever its options, and the one way in which it fills the response."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from model_wrappers.backbones.blocks import Grid
from model_wrappers.backbones.protocol import Ledger
from model_wrappers.sampling import Sampler
from model_wrappers.trace import FullObserver, How, Observer, Rejected, Window

ROUNDING = 1e-2  # of a probability in bfloat16


@dataclass(frozen=True)
class Request:
    """One response to decode.

    backbone, draft: the models of targets and of draft probs (it may be the same), each in a ledger. x_1L: LongTensor
    (1, L), prompt and response, which decoders read, and change through `commit` and `remask` alone. start: index of
    the response's first token. block_length: it divides the response. temperature: 0 is greedy. sampler: all
    randomness. observer: sees every change. windows: those of `record`. given: positions, the prompt's too, that are
    never masked again. grid: the blocks of a block model, the last of which may go beyond the response; None is LLaDA's
    blocks. end: index after the response (None: the sequence's). finished: ends and times of finished blocks. ways: how
    many tokens were committed, by how they came; "rejected": how often drafts were.
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
    grid: Grid | None = None
    end: int | None = None
    finished: list[tuple[int, float]] = field(default_factory=list)
    ways: Counter[str] = field(default_factory=Counter)

    @property
    def mask_id(self) -> int:
        """The mask's id."""
        return self.backbone.mask_id

    @property
    def length(self) -> int:
        """Tokens of the response."""
        return (self.x_1L.shape[1] if self.end is None else self.end) - self.start

    @property
    def block_ends(self) -> range:
        """Index after the last token of every block."""
        first = self.start + self.block_length if self.grid is None else self.grid.end(self.start)
        return range(first, self.x_1L.shape[1] + 1, self.block_length if self.grid is None else self.grid.length)

    def blocks(self) -> Iterator[range]:
        """The positions of every block in turn, the first of which may begin in the prompt.

        A block model's response ends with the block that has EOS. A decoder calls `finish` after each.
        """
        for end in self.block_ends:
            yield range(end - self.block_length, end)
            if self.grid is not None and self.has_eos(end):
                return

    def finish(self, block: range) -> None:
        """Note that a block is decoded, and when."""
        self.finished.append((block.stop, time.perf_counter()))

    def has_eos(self, end: int) -> bool:
        """Whether EOS stands in the response before this index."""
        return bool((self.x_1L[0, self.start : end] == self.backbone.eos_id).any())

    def block_end(self, position: int) -> int:
        """Index after the last token of the block that holds a position of the response."""
        return position + 1 + (self.block_ends[0] - position - 1) % self.block_length

    def commit(
        self,
        positions: torch.Tensor | Sequence[int],
        tokens: torch.Tensor | Sequence[int] | int,
        probs: torch.Tensor | Sequence[float] | None,
        how: How | Sequence[How],
    ) -> None:
        """Put tokens at positions of the sequence.

        positions: LongTensor (N,) or a list, indices into x_1L. tokens: (N,), or one for all. probs: (N,), what the
        decoder gave each token; None if it gave none. how: how they came, one word or (N,).
        """
        self.x_1L[0, positions] = torch.as_tensor(tokens, device=self.x_1L.device)
        self.ways.update({how: len(positions)} if isinstance(how, str) else how)
        if self.observer is not None:
            changed = [at - self.start for at in torch.as_tensor(positions).tolist()]
            given = [math.nan] * len(changed) if probs is None else _listed(probs)
            ways: Sequence[How] = [how] * len(changed) if isinstance(how, str) else how
            if not len(changed) == len(given) == len(ways):
                raise ValueError(f"{len(given)} probs and {len(ways)} words for {len(changed)} positions")
            self.observer.committed(*self._inside(changed, self.x_1L[0, positions].tolist(), given, ways))

    def remask(self, positions: Sequence[int], tokens: torch.Tensor | None = None) -> None:
        """Corrupt positions of the sequence again: to the mask, or to `tokens` (N,) drawn from another kernel.

        Raises ValueError for positions that were given.
        """
        given = self.given.intersection(positions)
        if given:
            raise ValueError(f"positions {sorted(given)} of the sequence were given; a decoder must not mask them")
        self.x_1L[0, positions] = self.mask_id if tokens is None else tokens
        if self.observer is not None:
            changed = [at - self.start for at in positions]
            self.observer.remasked(*self._inside(changed, self.x_1L[0, positions].tolist()))

    def reject(self, drafts: Callable[[], Rejected]) -> None:
        """Note the drafts of a window that were not accepted, before the window itself.

        drafts: gives them; it is called for an observer that wants them, so that else their probabilities cost nothing.
        """
        self.ways["rejected"] += 1
        if self.observer is not None and isinstance(self.observer, FullObserver):
            positions, tokens, draft_probs, target_probs = drafts()
            at = [position - self.start for position in positions]
            if at[0] >= self.length:  # the one that was rejected is beyond the response
                return
            self.observer.rejected(*self._inside(at, tokens, _listed(draft_probs), _listed(target_probs)))

    def record(self, window: Window, positions: Sequence[int] | None = None) -> None:
        """Note a speculative window. Raises ValueError for counts that cannot be.

        positions: in the sequence, of all that it proposed or resolved, the drafts last, in their order; those after
        the response, in a block model's last block, are not counted.
        """
        counted = vars(window).values()
        whole = {*map(type, counted)} == {int} and min(counted) >= 0
        if not whole or window.accepted > min(window.proposed, window.committed):
            raise ValueError(
                f"{window} cannot be: it counts in int from 0, and accepts no more than it proposed or committed"
            )
        last = self.windows[-1] if self.windows else None
        if last and (last.step, last.round, last.start) == (window.step, window.round, window.start):
            raise ValueError(f"{window} is recorded already")
        inside = [position < self.start + self.length for position in positions or ()]
        if not all(inside):
            if not any(inside):
                return
            drafts = inside[len(inside) - window.proposed :]
            counts = sum(drafts), sum(drafts[: window.accepted]), sum(inside[: window.committed])
            window = Window(window.step, window.round, window.start, *counts)
        places = self.x_1L.shape[1] - self.start
        if max(window.proposed, window.committed, window.start + 1) > places:
            raise ValueError(f"{window} cannot be: the response has {places} tokens, and start counts from its first")
        self.windows.append(window)
        if self.observer is not None and isinstance(self.observer, FullObserver):
            self.observer.recorded(window)

    def _inside(self, at: list[int], *values: Sequence[Any]) -> Any:
        """Places in the response, and values of them, without those in the prompt or beyond the end."""
        if min(at, default=0) >= 0 and max(at, default=0) < self.length:
            return at, *values
        kept = [number for number, place in enumerate(at) if 0 <= place < self.length]
        return tuple([of[number] for number in kept] for of in (at, *values))


def fill_after_eos(request: Request) -> bool:
    """Fill the masks after the first EOS with EOS if no mask is left before it; whether that was so."""
    response_L, eos_id = request.x_1L[0, request.start :], request.backbone.eos_id
    eos = (response_L == eos_id).nonzero()
    if len(eos) == 0 or bool((response_L[: int(eos[0])] == request.mask_id).any()):
        return False
    masked = (response_L == request.mask_id).nonzero()[:, 0]
    request.commit(masked + request.start, eos_id, None, "filled")
    return True


def _listed(probs: torch.Tensor | Sequence[float]) -> list[float]:
    found = [float(prob) for prob in torch.as_tensor(probs).tolist()]
    for prob in found:
        if not (math.isnan(prob) or -ROUNDING <= prob <= 1 + ROUNDING):
            raise ValueError(f"a token's probability is {prob}: it must be 0 to 1, or NaN where there is none")
    return found
