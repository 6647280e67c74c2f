"""The request that every decoder gets, and the methods by which it fills the response."""

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
from model_wrappers.trace import CommitKind, FullObserver, Observer, Rejected, Window

WAYS = get_args(CommitKind)  # any other word for how a token came counts as "unmasked"


@dataclass(frozen=True)
class Request:
    """One response to decode.

    Decoders change `x_1L` through `commit` and `remask`, which pass the observer the probabilities
    and how tokens came about. They may also write into it in place.

    Attributes:
        backbone: the model that gives targets, in a ledger.
        draft: the model that gives draft probs, in a ledger; it may be the same model.
        x_1L: LongTensor (1, L), prompt and response. It is on the CPU wherever the models are: a
            decoder decides on the host, and its calls take the sequence to the device.
        start: index of the response's first token.
        block_length: length of LLaDA's blocks, which divides the response, or of a block model's.
        temperature: 0 is greedy.
        sampler: source of all randomness.
        observer: sees every change, if there is one.
        windows: the speculative windows that `record` was called with.
        given: positions that may not be masked again: the prompt's and the given tokens'.
        grid: the blocks of a block model; the last one may reach beyond the response.
        end: index after the response (None: the end of the sequence).
        finished: for each finished block its end and the time (time.perf_counter).
        observed: the sequence as it was last shown to the observer.
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
        """For every block the index after its last token."""
        first = self.start + self.block_length
        if self.grid is not None:
            first = self.grid.end(self.start)
        return range(first, self.x_1L.shape[1] + 1, self.block_length)

    def blocks(self) -> Iterator[range]:
        """Iterate over the blocks, each as the range of its positions.

        The first block of a block model may begin in the prompt, and its response ends with the
        block that has EOS. A decoder calls `finish` after each block.
        """
        for end in self.block_ends:
            yield range(end - self.block_length, end)
            # Later blocks of a block model are not run; LLaDA's blocks are all part of the
            # response.
            if self.grid is not None and self.has_eos(end):
                return

    def finish(self, block: range) -> None:
        """Record the time at which a block is decoded."""
        self.finished.append((block.stop, time.perf_counter()))

    def has_eos(self, end: int) -> bool:
        """Whether the response has an EOS before this index of the sequence."""
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
        how: CommitKind | Sequence[CommitKind],
    ) -> None:
        """Put tokens at positions of the sequence.

        Args:
            positions: LongTensor (N,) or a list, indices into x_1L.
            tokens: (N,), or one token for all positions.
            probs: (N,), the probability that the decoder gave each token (None: it gave none).
            how: how the tokens came about, one word for all or one for each.
        """
        # Changes in place since the last call come before this one in the observer's order.
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
            tokens: (N,), corrupted tokens of another kernel than the absorbing one (None: masks).

        Raises:
            ValueError: a position is a given one.
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
        """Show the observer the changes that were made in place since it last saw the sequence."""
        if self.observer is None:
            return
        sequence = self.x_1L[0].tolist()
        changed = [at for at, token in enumerate(sequence) if token != self.observed[at]]
        masked = [at for at in changed if sequence[at] == self.mask_id]
        filled = [at for at in changed if sequence[at] != self.mask_id]
        if masked:
            self._show_remasked(masked)
        if filled:
            self.show_committed(filled, None, "unmasked")

    def show_committed(
        self,
        positions: list[int],
        probs: Tensor | Sequence[float] | None,
        how: CommitKind | Sequence[CommitKind],
    ) -> None:
        """Show the observer that tokens were committed; they are in the sequence already."""
        assert self.observer is not None
        prob_list = [math.nan] * len(positions) if probs is None else _listed(probs)
        words = [how] * len(positions) if isinstance(how, str) else how
        if not len(positions) == len(prob_list) == len(words):
            raise ValueError(
                f"{len(prob_list)} probs and {len(words)} words for {len(positions)} positions"
            )
        # Records hold the words of WAYS; a decoder from outside may have words of its own.
        ways = [word if word in WAYS else "unmasked" for word in words]
        self.observed[:] = self.x_1L[0].tolist()
        tokens = [self.observed[at] for at in positions]
        self.observer.committed(*self._inside(positions, tokens, prob_list, ways))

    def _show_remasked(self, positions: list[int]) -> None:
        """Show the observer that positions were corrupted again."""
        assert self.observer is not None
        tokens = self.x_1L[0, positions].tolist()
        for at, token in zip(positions, tokens, strict=True):
            self.observed[at] = token
        self.observer.remasked(*self._inside(positions, tokens))

    def reject(self, drafts: Callable[[], Rejected]) -> None:
        """Show the observer the drafts of a window that were not accepted, before the window
        itself.

        Args:
            drafts: returns them. It is called only if the observer wants them, so that without one
                their probabilities are not computed.
        """
        if self.observer is None or not isinstance(self.observer, FullObserver):
            return
        positions, tokens, draft_probs, target_probs = drafts()
        # If the rejected draft itself is beyond the response (in the last block of a block model),
        # so are those after it.
        if positions[0] < self.start + self.length:
            columns = (tokens, _listed(draft_probs), _listed(target_probs))
            self.observer.rejected(*self._inside(positions, *columns))

    def record(self, window: Window, positions: Sequence[int] | None = None) -> None:
        """Record a speculative window.

        Args:
            window: its counts of proposed, accepted and committed tokens.
            positions: positions in the sequence of all tokens that it proposed or resolved, in
                order, the drafts last. Positions after the response, in a block model's last block,
                are taken out of the counts (None: all are in the response).

        Raises:
            ValueError: the window accepts more than it proposed or committed.
        """
        # Counts may be tensors or numbers of numpy's, which a record cannot hold.
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
        """Indices in the response of those positions that lie in it, and their values."""
        response = range(self.start, self.start + self.length)
        rows = [row for row, at in enumerate(positions) if at in response]
        indices = [positions[row] - self.start for row in rows]
        return indices, *([column[row] for row in rows] for column in values)


def fill_after_eos(request: Request) -> bool:
    """Fill the masks after the first EOS with EOS, provided that no mask is left before it.

    Returns:
        Whether there is such an EOS, so that the response is complete.
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
