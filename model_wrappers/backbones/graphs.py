"""CUDA graphs: a forward in a few shapes, each captured once and then replayed, so that its kernels
start at once.

A graph has fixed shapes and addresses. So tokens, positions to read and keys are filled up to one
of a few sizes (buckets): nothing reads what fills up, and no token attends to it. Keys and values
lie in buffers of a pool, with the same addresses as sequences come and go. All of this runs without
a graph as well, on any device, and gives the same logits but for rounding. Calls of several rows
(literal verification, guidance) run as they are.

Shapes: N tokens of a call, K keys, C capacity of a buffer, D head size, H heads, V vocabulary, n
positions to read.
"""

import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from model_wrappers.backbones.plain import Call, ModelForward, PlainForward
from model_wrappers.backbones.protocol import Buffers, KeyValues

Run = Callable[[], Tensor]
Capture = Callable[[Run, torch.device], Run]
MOST_GRAPHS = 64  # beyond it the one that was not used for the longest time is dropped
LEAST_TOKENS = 16
LEAST_READ = 8
LEAST_ROOM = 256
WARM_UPS = 3  # calls before a capture: what libraries allocate once must not be part of it


def tokens_bucket(count: int) -> int:
    """The tokens of a call that has `count`: 16, or a multiple of 32."""
    return LEAST_TOKENS if count <= LEAST_TOKENS else -(-count // 32) * 32


def power_bucket(count: int, least: int) -> int:
    """The first power of two that is neither below `count` nor below `least`, a power of two
    itself."""
    return max(least, 1 << (count - 1).bit_length())


def captured(run: Run, device: torch.device) -> Run:
    """A CUDA graph of `run`, which must read and write the same memory every time; the result's
    memory is one as well.

    Raises RuntimeError, of torch, for what cannot be captured.
    """
    with torch.cuda.device(device):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = run()

    def replay() -> Tensor:
        with torch.cuda.device(device):
            graph.replay()
        return output

    return replay


class Slots:
    """What a layer takes for a cache in a call of fixed shape: new tokens go to slots, everything
    is seen."""

    def __init__(self, buffers: Buffers, slot_N: Tensor) -> None:
        self._buffers = buffers
        self._slot_N = slot_N

    def update(
        self, key_1HND: Tensor, value_1HND: Tensor, layer_idx: int, **_: Any
    ) -> tuple[Tensor, Tensor]:
        """Take the new keys and values of a layer; the buffers as a whole, (1, H, C, D)."""
        keys, values = (layers[layer_idx] for layers in self._buffers)
        keys.index_copy_(2, self._slot_N, key_1HND)
        values.index_copy_(2, self._slot_N, value_1HND)
        return keys, values


class Step:
    """A call of fixed shape: inputs that stay where they are, and what runs on them.

    Args:
        forward: what runs.
        tokens: N.
        read: n.
        buffers: of the cache, None for a call without one.
        capture: makes a graph of a call.
    """

    def __init__(
        self,
        forward: PlainForward,
        tokens: int,
        read: int,
        buffers: Buffers | None,
        capture: Capture,
    ) -> None:
        device = forward.device
        keys = tokens if buffers is None else buffers[0][0].shape[2]
        self._ids_1N, self._position_1N = torch.zeros(2, 1, tokens, dtype=torch.long, device=device)
        self._slot_N = torch.arange(tokens, device=device)
        self._read_n = torch.zeros(read, dtype=torch.long, device=device)
        self._visible_NK = torch.zeros(tokens, keys, dtype=torch.bool, device=device)
        self._visible_NK[:, 0] = True  # a row that sees nothing would have no softmax
        self._forward = forward
        self._buffers = buffers
        self._capture = capture
        self._run: Run | None = None

    def __call__(
        self,
        ids_1N: Tensor,
        position_1N: Tensor,
        visible_NK: Tensor,
        slot_N: Tensor,
        read_n: Tensor,
    ) -> Tensor:
        """Logits (1, n, V) of a smaller call, in memory of their own; slot_N is of the bucket's
        size."""
        tokens, keys = visible_NK.shape
        self._ids_1N[:, :tokens] = ids_1N
        self._position_1N[:, :tokens] = position_1N
        self._visible_NK[:, 1:] = False
        self._visible_NK[:, 0] = True
        self._visible_NK[:tokens, :keys] = visible_NK
        self._slot_N.copy_(slot_N)
        self._read_n[: len(read_n)] = read_n
        if self._run is None:
            self._run = self._capture(self._compute, self._ids_1N.device)
        return self._run()[:, : len(read_n)].clone()

    def _compute(self) -> Tensor:
        cache: Any = None if self._buffers is None else Slots(self._buffers, self._slot_N)
        return self._forward(
            self._ids_1N, self._position_1N, self._visible_NK[None, None], cache, self._read_n
        )


class GraphedForward:
    """Takes and gives what `HeadAtPositions.infer` does, in calls of a few shapes.

    Args:
        forward: what runs; a model that was changed since it was loaded runs without graphs.
        capture: makes a graph of a call.

    Raises:
        ValueError: a model with calls of one shape that differ in what they do.
    """

    def __init__(self, forward: ModelForward, capture: Capture = captured) -> None:
        if forward.plain is None or not forward.plain.is_static:
            raise ValueError(
                "CUDA graphs need a model of known, dense layers, and this one has others: leave"
                " them out"
            )
        self._model = forward
        self._forward = forward.plain
        self._capture = capture
        self._version = forward.plain.versions
        self._steps: OrderedDict[tuple[int, int, int], Step] = OrderedDict()
        self._free: dict[int, list[Buffers]] = {}
        self.count = 0  # graphs made so far

    def __call__(self, *call: Any) -> Tensor:
        """Logits (B, n, V) of a `Call`, or (B, N, V) where its positions are None."""
        ids_BN, position_BN, visible_B1NK, cache, positions = Call(*call)
        run = self._model.current()
        shows_queries = cache is not None and cache.shows_queries
        if run is not self._forward or len(ids_BN) > 1 or shows_queries:
            return run(*call)
        if self._version != self._forward.versions:  # graphs hold the weights that were there
            self._version = self._forward.versions
            self._steps.clear()
            self._free.clear()
        count = ids_BN.shape[1]
        tokens = tokens_bucket(count)
        buffers = None
        seen = count
        slot_N = torch.arange(tokens, device=ids_BN.device)
        if cache is not None:
            self._make_room(cache, tokens)
            buffers = cache.buffers
            seen = cache.filled
            slot_N = cache.slots(tokens, ids_BN.device)
        if positions is None:
            positions = torch.arange(count, device=ids_BN.device)
        if visible_B1NK is None:
            visible_B1NK = ids_BN.new_ones(1, 1, count, seen, dtype=torch.bool)
        read_n = positions.reshape(-1)
        step = self._step(tokens, power_bucket(len(read_n), LEAST_READ), buffers)
        return step(ids_BN, position_BN, visible_B1NK[0, 0], slot_N, read_n)

    def _step(self, tokens: int, read: int, buffers: Buffers | None) -> Step:
        key = (tokens, read, 0 if buffers is None else buffers[0][0].data_ptr())
        if key not in self._steps:
            self._steps[key] = Step(self._forward, tokens, read, buffers, self._capture)
            self.count += 1
            if len(self._steps) > MOST_GRAPHS:
                self._steps.popitem(last=False)
        self._steps.move_to_end(key)
        return self._steps[key]

    def _make_room(self, cache: KeyValues, tokens: int) -> None:
        """Buffers of the pool for a cache, with room for what is kept and `tokens` more."""
        needed = cache.get_seq_length() + tokens
        if cache.buffers[0] and cache.buffers[0][0].shape[2] >= needed:
            return
        capacity = power_bucket(needed + needed // 2, LEAST_ROOM)
        free = self._free.setdefault(capacity, [])
        buffers = free.pop() if free else self._forward.buffers(capacity)
        cache.adopt(buffers)
        # Back into the pool when the cache is gone, at the same addresses: graphs read there.
        weakref.finalize(cache, free.append, buffers)
