"""What every decoder is given, whatever its options, and the one way in which it fills the
response."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import torch

from model_wrappers.backbones.blocks import Grid
from model_wrappers.backbones.protocol import Ledger
from model_wrappers.sampling import Sampler
from model_wrappers.trace import FullObserver, How, Observer, Rejected, Window

ROUNDING = 1e-2  # of a probability in bfloat16
WAYS = get_args(How)  # any other word for how a token came counts as "unmasked"


@dataclass(frozen=True)
class Request:
    """One response to decode.

    backbone, draft: the models of targets and of draft probs (it may be the same), each in a
    ledger. x_1L: LongTensor (1, L), prompt and response. Decoders change it through `commit` and
    `remask`, which note how and by what probability, or in place. start: index of the response's
    first token. block_length: it divides the response. temperature: 0 is greedy. sampler: all
    randomness. observer: sees every change. windows: those of `record`. given: positions, the
    prompt's too, that are never masked again. grid: the blocks of a block model, the last of which
    may go beyond the response; None is LLaDA's blocks. end: index after the response (None: the
    sequence's). finished: ends and times of finished blocks. observed: the sequence as the observer
    knows it.
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
    observed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.observer is not None:
            self.observed.extend(self.x_1L[0].tolist())

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
        return range(
            first,
            self.x_1L.shape[1] + 1,
            self.block_length if self.grid is None else self.grid.length,
        )

    def blocks(self) -> Iterator[range]:
        """The positions of every block in turn, the first of which may begin in the prompt.

        A block model's response ends with the block that has EOS. A decoder calls `finish` after
        each.
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

        positions: LongTensor (N,) or a list, indices into x_1L. tokens: (N,), or one for all.
        probs: (N,), what the decoder gave each token; None if it gave none. how: how they came, one
        word or (N,).
        """
        self.observe()
        self.x_1L[0, positions] = torch.as_tensor(tokens, device=self.x_1L.device)
        if self.observer is not None:
            self._committed(torch.as_tensor(positions).tolist(), probs, how)

    def observe(self) -> None:
        """Show the observer, if there is one, what was written into the sequence in place since it
        saw it."""
        if self.observer is None:
            return
        sequence = self.x_1L[0].tolist()
        written = [at for at, token in enumerate(sequence) if token != self.observed[at]]
        masked = [at for at in written if sequence[at] == self.mask_id]
        filled = [at for at in written if sequence[at] != self.mask_id]
        if masked:
            self._remasked(masked)
        if filled:
            self._committed(filled, None, "unmasked")

    def _committed(
        self, at: list[int], probs: torch.Tensor | Sequence[float] | None, how: How | Sequence[How]
    ) -> None:
        """Tell the observer of tokens that are at indices of the sequence now."""
        assert self.observer is not None
        sequence = self.x_1L[0].tolist()
        tokens = [sequence[index] for index in at]
        given = [math.nan] * len(at) if probs is None else _listed(probs)
        words = [how] * len(at) if isinstance(how, str) else how
        if not len(at) == len(given) == len(words):
            raise ValueError(f"{len(given)} probs and {len(words)} words for {len(at)} positions")
        ways = [word if word in WAYS else "unmasked" for word in words]
        self.observed[:] = sequence
        self.observer.committed(
            *self._inside([index - self.start for index in at], tokens, given, ways)
        )

    def _remasked(self, at: list[int]) -> None:
        """Tell the observer of indices of the sequence that are corrupted again."""
        assert self.observer is not None
        sequence = self.x_1L[0].tolist()
        for index in at:
            self.observed[index] = sequence[index]
        tokens = [sequence[index] for index in at]
        self.observer.remasked(*self._inside([index - self.start for index in at], tokens))

    def remask(self, positions: Sequence[int], tokens: torch.Tensor | None = None) -> None:
        """Corrupt positions of the sequence again: to the mask, or to `tokens` (N,) drawn from
        another kernel.

        Raises ValueError for positions that were given.
        """
        given = self.given.intersection(positions)
        if given:
            raise ValueError(
                f"positions {sorted(given)} of the sequence were given; a decoder must not mask"
                " them"
            )
        self.observe()
        self.x_1L[0, positions] = self.mask_id if tokens is None else tokens
        if self.observer is not None:
            self._remasked(list(positions))

    def reject(self, drafts: Callable[[], Rejected]) -> None:
        """Note the drafts of a window that were not accepted, before the window itself.

        drafts: gives them; it is called for an observer that wants them, so that else their
        probabilities cost nothing.
        """
        if self.observer is not None and isinstance(self.observer, FullObserver):
            positions, tokens, draft_probs, target_probs = drafts()
            at = [position - self.start for position in positions]
            if at[0] >= self.length:  # the one that was rejected is beyond the response
                return
            self.observer.rejected(
                *self._inside(at, tokens, _listed(draft_probs), _listed(target_probs))
            )

    def record(self, window: Window, positions: Sequence[int] | None = None) -> None:
        """Note a speculative window. Raises ValueError for one that accepts more than it proposed
        or committed.

        positions: in the sequence, of all that it proposed or resolved, the drafts last, in their
        order; those after the response, in a block model's last block, are not counted.
        """
        window = Window(*map(int, vars(window).values()))
        if window.accepted > min(window.proposed, window.committed):
            raise ValueError(
                f"{window} cannot be: it accepts no more than it proposed or committed"
            )
        inside = [position < self.start + self.length for position in positions or ()]
        if not all(inside):
            if not any(inside):
                return
            drafts = inside[len(inside) - window.proposed :]
            window = replace(
                window,
                proposed=sum(drafts),
                accepted=sum(drafts[: window.accepted]),
                committed=sum(inside[: window.committed]),
            )
        self.observe()
        self.windows.append(window)
        if self.observer is not None and isinstance(self.observer, FullObserver):
            self.observer.recorded(window)

    def _inside(self, at: list[int], *values: Sequence[Any]) -> Any:
        """Places in the response, and values of them, without those in the prompt or beyond the
        end."""
        if min(at, default=0) >= 0 and max(at, default=0) < self.length:
            return at, *values
        kept = [number for number, place in enumerate(at) if 0 <= place < self.length]
        return tuple([of[number] for number in kept] for of in (at, *values))


def fill_after_eos(request: Request) -> bool:
    """Fill the masks after the first EOS with EOS if no mask is left before it; whether that was
    so."""
    response_L = request.x_1L[0, request.start :]
    eos_id = request.backbone.eos_id
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
            raise ValueError(
                f"a token's probability is {prob}: it must be 0 to 1, or NaN where there is none"
            )
    return found
