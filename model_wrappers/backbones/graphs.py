"""CUDA graphs: a forward in a few shapes, each captured once and then replayed, so that all its
kernels are launched at once.

A graph has fixed shapes and addresses. So tokens, positions to read and keys are padded to one of a
few sizes (buckets); padding is not read, and no token attends to it. Keys and values are in buffers
of a pool, whose addresses stay the same as sequences come and go. All of this also runs without
graphs, on any device, with the same logits but for rounding. Calls of several rows (literal
verification, guidance) run without graphs.

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
MOST_GRAPHS = 64  # with more, the least recently used graph is dropped
LEAST_TOKENS = 16
LEAST_READ = 8
LEAST_ROOM = 256
WARM_UPS = 3  # calls before a capture, for allocations of libraries that must not be part of it


def tokens_bucket(count: int) -> int:
    """The padded number of a call's tokens: 16, or a multiple of 32."""
    return LEAST_TOKENS if count <= LEAST_TOKENS else -(-count // 32) * 32


def power_bucket(count: int, least: int) -> int:
    """The least power of two that is at least `count` and at least `least` (a power of two)."""
    return max(least, 1 << (count - 1).bit_length())


def captured(run: Run, device: torch.device) -> Run:
    """Capture `run`, which must read and write the same memory at every call, as a CUDA graph.

    Returns:
        A function that replays the graph; its result is always in the same memory.

    Raises:
        RuntimeError: of torch, if `run` cannot be captured.
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
    """The cache of a layer in a call of fixed shape: new tokens are written to slots, and the whole
    buffers are attended to, under the call's mask."""

    def __init__(self, buffers: Buffers, slot_N: Tensor) -> None:
        self._buffers = buffers
        self._slot_N = slot_N

    def update(
        self, key_1HND: Tensor, value_1HND: Tensor, layer_idx: int, **_: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the new keys and values of a layer; returns its whole buffers, (1, H, C, D)."""
        keys, values = (layers[layer_idx] for layers in self._buffers)
        keys.index_copy_(2, self._slot_N, key_1HND)
        values.index_copy_(2, self._slot_N, value_1HND)
        return keys, values


class Step:
    """A call of fixed shape: inputs at fixed addresses, and the graph that runs on them.

    Args:
        forward: the model's forward.
        tokens: N.
        read: n.
        buffers: the cache's buffers (None: a call without a cache).
    """

    def __init__(
        self, forward: PlainForward, tokens: int, read: int, buffers: Buffers | None
    ) -> None:
        device = forward.device
        keys = tokens if buffers is None else buffers[0][0].shape[2]
        self._ids_1N, self._position_1N = torch.zeros(2, 1, tokens, dtype=torch.long, device=device)
        self._slot_N = torch.arange(tokens, device=device)
        self._read_n = torch.zeros(read, dtype=torch.long, device=device)
        self._visible_NK = torch.zeros(tokens, keys, dtype=torch.bool, device=device)
        # Padding attends to the first key: without any key its softmax would be NaN.
        self._visible_NK[:, 0] = True
        self._forward = forward
        self._buffers = buffers
        self._run: Run | None = None

    def __call__(
        self,
        ids_1N: Tensor,
        position_1N: Tensor,
        visible_NK: Tensor,
        slot_N: Tensor,
        read_n: Tensor,
    ) -> Tensor:
        """Logits (1, n, V) of a call of at most this shape, copied out of the graph's memory.

        Only slot_N has the padded size.
        """
        tokens, keys = visible_NK.shape
        self._ids_1N[:, :tokens] = ids_1N
        self._position_1N[:, :tokens] = position_1N
        self._visible_NK[:, 1:] = False
        self._visible_NK[:, 0] = True
        self._visible_NK[:tokens, :keys] = visible_NK
        self._slot_N.copy_(slot_N)
        self._read_n[: len(read_n)] = read_n
        if self._run is None:
            self._run = captured(self._compute, self._ids_1N.device)
        return self._run()[:, : len(read_n)].clone()

    def _compute(self) -> Tensor:
        cache: Any = None if self._buffers is None else Slots(self._buffers, self._slot_N)
        return self._forward(
            self._ids_1N, self._position_1N, self._visible_NK[None, None], cache, self._read_n
        )


class GraphedForward:
    """A forward by CUDA graphs, called as `HeadAtPositions.infer`.

    Args:
        forward: the model's forward; a model that was changed after loading runs without graphs.

    Raises:
        ValueError: the model's calls of one shape do not always run the same kernels.
    """

    def __init__(self, forward: ModelForward) -> None:
        if forward.plain is None or not forward.plain.is_static:
            raise ValueError(
                "CUDA graphs need a model of known, dense layers, and this one has others: leave"
                " them out"
            )
        self._model = forward
        self._forward = forward.plain
        self._version = forward.plain.versions
        self._steps: OrderedDict[tuple[int, int, int], Step] = OrderedDict()
        self._free: dict[int, list[Buffers]] = {}
        self.count = 0  # graphs made so far

    def __call__(self, *call: Any) -> Tensor:
        """Logits (B, n, V) of a `Call`, or (B, N, V) where its positions are None."""
        ids_BN, position_BN, visible_B1NK, cache, positions = Call(*call)
        run = self._model.current()
        reads_queries = cache is not None and cache.reads_queries
        if run is not self._forward or len(ids_BN) > 1 or reads_queries:
            return run(*call)
        # Graphs read the weights at the addresses of their capture: after a change they are stale.
        if self._version != self._forward.versions:
            self._version = self._forward.versions
            self._steps.clear()
            self._free.clear()
        count = ids_BN.shape[1]
        tokens = tokens_bucket(count)
        buffers = None
        keys = count
        slot_N = torch.arange(tokens, device=ids_BN.device)
        if cache is not None:
            self._make_room(cache, tokens)
            buffers = cache.buffers
            keys = cache.filled
            slot_N = cache.slots(tokens, ids_BN.device)
        if positions is None:
            positions = torch.arange(count, device=ids_BN.device)
        if visible_B1NK is None:
            visible_B1NK = ids_BN.new_ones(1, 1, count, keys, dtype=torch.bool)
        read_n = positions.reshape(-1)
        step = self._step(tokens, power_bucket(len(read_n), LEAST_READ), buffers)
        return step(ids_BN, position_BN, visible_B1NK[0, 0], slot_N, read_n)

    def _step(self, tokens: int, read: int, buffers: Buffers | None) -> Step:
        # A graph is of fixed buffers: their address is part of what it is found by.
        key = (tokens, read, 0 if buffers is None else buffers[0][0].data_ptr())
        if key not in self._steps:
            self._steps[key] = Step(self._forward, tokens, read, buffers)
            self.count += 1
            if len(self._steps) > MOST_GRAPHS:
                self._steps.popitem(last=False)
        self._steps.move_to_end(key)
        return self._steps[key]

    def _make_room(self, cache: KeyValues, tokens: int) -> None:
        """Give a cache buffers of the pool that have room for `tokens` more tokens."""
        needed = cache.get_seq_length() + tokens
        if cache.buffers[0] and cache.buffers[0][0].shape[2] >= needed:
            return
        capacity = power_bucket(needed + needed // 2, LEAST_ROOM)
        free = self._free.setdefault(capacity, [])
        buffers = free.pop() if free else self._forward.buffers(capacity)
        cache.adopt(buffers)
        # When the cache is deleted its buffers return to the pool, for the graphs that read them.
        weakref.finalize(cache, free.append, buffers)
