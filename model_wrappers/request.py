"""What every decoder is given, whatever its options, and the one way in which it fills the
response."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import torch
from torch import Tensor

from model_wrappers.backbones.blocks import Grid
from model_wrappers.backbones.protocol import Ledger
from model_wrappers.sampling import Sampler
from model_wrappers.trace import FullObserver, How, Observer, Rejected, Window

WAYS = get_args(How)  # any other word for how a token came counts as "unmasked"


@dataclass(frozen=True)
class Request:
    """One response to decode.

    Decoders change `x_1L` through `commit` and `remask`, which note how and by what probability, or
    in place.

    Attributes:
        backbone: the model of targets, in a ledger.
        draft: that of draft probs; it may be the same.
        x_1L: LongTensor (1, L), prompt and response, on the CPU wherever the models are: a decoder
            decides on the host, and its calls take the sequence to the device.
        start: index of the response's first token.
        block_length: of LLaDA's blocks, or the model's; the former divides the response.
        temperature: 0 is greedy.
        sampler: all randomness.
        observer: sees every change.
        windows: those of `record`.
        given: positions, the prompt's too, that are never masked again.
        grid: the blocks of a block model, the last of which may go beyond the response.
        end: index after the response (None: the sequence's).
        finished: ends and times of finished blocks.
        observed: the sequence as the observer knows it.
    """

    backbone: Ledger
    draft: Ledger
    x_1L: Tensor
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
        first = self.start + self.block_length
        if self.grid is not None:
            first = self.grid.end(self.start)
        return range(first, self.x_1L.shape[1] + 1, self.block_length)

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

    def masked(self, begin: int = 0, end: int | None = None) -> Tensor:
        """Positions of masks from `begin` up to `end`, LongTensor (N,)."""
        return begin + (self.x_1L[0, begin:end] == self.mask_id).nonzero()[:, 0]

    def block_end(self, position: int) -> int:
        """Index after the last token of the block that holds a position of the response."""
        return position + 1 + (self.block_ends[0] - position - 1) % self.block_length

    def commit(
        self,
        positions: Tensor | Sequence[int],
        tokens: Tensor | Sequence[int] | int,
        probs: Tensor | Sequence[float] | None,
        how: How | Sequence[How],
    ) -> None:
        """Put tokens at positions of the sequence.

        Args:
            positions: LongTensor (N,) or a list, indices into x_1L.
            tokens: (N,), or one for all.
            probs: (N,), what the decoder gave each token; None if it gave none.
            how: how they came, one word or (N,).
        """
        self.observe()
        if isinstance(positions, Tensor):
            at_N = positions.cpu()
        else:
            at_N = torch.tensor(positions, dtype=torch.long)
        self.x_1L[0, at_N] = torch.as_tensor(tokens, device="cpu")
        if self.observer is not None:
            self.show_committed(at_N.tolist(), probs, how)

    def remask(self, positions: Sequence[int], tokens: Tensor | None = None) -> None:
        """Corrupt positions of the sequence again.

        Args:
            positions: indices into x_1L.
            tokens: (N,), drawn from another kernel; None is the mask.

        Raises:
            ValueError: positions that were given.
        """
        given = self.given.intersection(positions)
        if given:
            raise ValueError(
                f"positions {sorted(given)} of the sequence were given; a decoder must not mask"
                " them"
            )
        self.observe()
        self.x_1L[0, positions] = self.mask_id if tokens is None else tokens.cpu()
        if self.observer is not None:
            self._show_remasked(list(positions))

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
            self._show_remasked(masked)
        if filled:
            self.show_committed(filled, None, "unmasked")

    def show_committed(
        self,
        positions: list[int],
        probs: Tensor | Sequence[float] | None,
        how: How | Sequence[How],
    ) -> None:
        """Tell the observer of tokens that are at positions of the sequence now."""
        assert self.observer is not None
        shares = [math.nan] * len(positions) if probs is None else _listed(probs)
        words = [how] * len(positions) if isinstance(how, str) else how
        if not len(positions) == len(shares) == len(words):
            raise ValueError(
                f"{len(shares)} probs and {len(words)} words for {len(positions)} positions"
            )
        ways = [word if word in WAYS else "unmasked" for word in words]
        self.observed[:] = self.x_1L[0].tolist()
        tokens = [self.observed[at] for at in positions]
        self.observer.committed(*self._inside(positions, tokens, shares, ways))

    def _show_remasked(self, positions: list[int]) -> None:
        """Tell the observer of positions of the sequence that are corrupted again."""
        assert self.observer is not None
        tokens = self.x_1L[0, positions].tolist()
        for at, token in zip(positions, tokens, strict=True):
            self.observed[at] = token
        self.observer.remasked(*self._inside(positions, tokens))

    def reject(self, drafts: Callable[[], Rejected]) -> None:
        """Note the drafts of a window that were not accepted, before the window itself.

        Args:
            drafts: gives them; it is called for an observer that wants them, so that else their
                probabilities cost nothing.
        """
        if self.observer is None or not isinstance(self.observer, FullObserver):
            return
        positions, tokens, draft_probs, target_probs = drafts()
        # Where the one that was rejected is beyond the response, none is told.
        if positions[0] < self.start + self.length:
            columns = (tokens, _listed(draft_probs), _listed(target_probs))
            self.observer.rejected(*self._inside(positions, *columns))

    def record(self, window: Window, positions: Sequence[int] | None = None) -> None:
        """Note a speculative window.

        Args:
            window: what it proposed, accepted and committed.
            positions: in the sequence, of all that it proposed or resolved, the drafts last, in
                their order; those after the response, in a block model's last block, are not
                counted.

        Raises:
            ValueError: a window that accepts more than it proposed or committed.
        """
        window = Window(*map(int, vars(window).values()))
        if window.accepted > min(window.proposed, window.committed):
            raise ValueError(
                f"{window} cannot be: it accepts no more than it proposed or committed"
            )
        is_inside = [position < self.start + self.length for position in positions or ()]
        if is_inside and not any(is_inside):
            return
        if not all(is_inside):
            of_drafts = is_inside[len(is_inside) - window.proposed :]
            window = replace(
                window,
                proposed=sum(of_drafts),
                accepted=sum(of_drafts[: window.accepted]),
                committed=sum(is_inside[: window.committed]),
            )
        self.observe()
        self.windows.append(window)
        if self.observer is not None and isinstance(self.observer, FullObserver):
            self.observer.recorded(window)

    def _inside(self, positions: Sequence[int], *values: Sequence[Any]) -> Any:
        """Places in the response, and values of each, but for positions outside it."""
        response = range(self.start, self.start + self.length)
        rows = [row for row, at in enumerate(positions) if at in response]
        places = [positions[row] - self.start for row in rows]
        return places, *([column[row] for row in rows] for column in values)


def fill_after_eos(request: Request) -> bool:
    """Fill the masks after the first EOS with EOS if no mask is left before it.

    Returns:
        Whether that was so.
    """
    eos_id = request.backbone.eos_id
    eos = request.start + (request.x_1L[0, request.start :] == eos_id).nonzero()[:, 0]
    if len(eos) == 0:
        return False
    masked = request.masked(request.start)
    if bool((masked < eos[0]).any()):
        return False
    request.commit(masked, eos_id, None, "filled")
    return True


def _listed(probs: Tensor | Sequence[float]) -> list[float]:
    return list(torch.as_tensor(probs).tolist())
