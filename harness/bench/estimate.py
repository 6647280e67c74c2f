"""What decoding would take at least on a GPU with a large model, by data sheets: calls are counted, nothing is timed.

A small model decodes, and each of its calls is priced at the shape of a large one: it reads all weights and the keys
and values that it attends to, or does its operations, whichever takes longer. Launches, the sampler and activations are
left out, so a decoder with many small calls is favoured.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from harness.bench.decoders import dev_prompts, options_of
from harness.bench.shapes import SHAPES
from harness.methods.presets import Preset
from harness.stats import ratio_of_totals
from model_wrappers import Backbone, decode
from model_wrappers.backbones.plain import Call

# Bytes of memory and operations in bfloat16, without sparsity, a second: NVIDIA's data sheets (A100: 80 GB, SXM).
DEVICES = {
    "a100": (2.039e12, 312e12),
    "h100": (3.35e12, 989e12),
    "h200": (4.8e12, 989e12),
    "l40s": (0.864e12, 362e12),
    "rtx4090": (1.008e12, 165e12),
}
EFFICIENCY = 0.5  # of the operations of a data sheet, in large products
BYTES = 2  # of a weight, key or value


class Work(NamedTuple):
    """A call of the model: tokens through it, positions whose logits are read, keys it reads, pairs that attend."""

    tokens: int
    read: int
    keys: int
    pairs: int


@dataclass(frozen=True)
class Shape:
    """Sizes of a large model. layers: weights of all; head: of the vocabulary. width: of hidden states. keys: values
    that one token keeps, keys and values of all layers. depth: number of layers.
    """

    layers: int
    head: int
    width: int
    keys: int
    depth: int

    @classmethod
    def of(cls, arch: str) -> Shape:
        """Of one of SHAPES."""
        sizes = SHAPES[arch]
        width, depth, inner = sizes["hidden_size"], sizes["num_hidden_layers"], sizes["intermediate_size"]
        kept = width * sizes["num_key_value_heads"] // sizes["num_attention_heads"]
        layer = 2 * width * width + 2 * width * kept + 3 * width * inner
        return cls(depth * layer, width * sizes["vocab_size"], width, 2 * depth * kept, depth)

    def bytes_of(self, call: Work) -> int:
        """What a call reads."""
        return BYTES * (self.layers + self.head + self.keys * call.keys)

    def operations_of(self, call: Work) -> int:
        """Multiplications and additions of a call."""
        return 2 * (self.layers * call.tokens + self.head * call.read) + 4 * self.width * self.depth * call.pairs


class _Recording:
    """Takes and gives what `HeadAtPositions.infer` does, and keeps what each call has to do."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self.calls: list[Work] = []

    def __call__(self, *call: Any) -> Any:
        ids_BN, _, visible_B1NK, cache, positions = Call(*call)
        rows, tokens = ids_BN.shape
        keys = tokens if cache is None else cache.filled
        pairs = rows * tokens * keys if visible_B1NK is None else int(visible_B1NK.expand(rows, -1, -1, -1).sum())
        read = tokens if positions is None else positions.shape[-1]
        self.calls.append(Work(ids_BN.numel(), rows * read, rows * keys if cache is None else keys, pairs))
        return self._run(*call)


def bench_estimate(
    backbone: Backbone, device: str, suites: list[str], limit: int, presets: dict[str, Preset], arch: str = "llada-8b"
) -> pd.DataFrame:
    """A row for each method and suite: means of a response, priced at the shape `arch` on one of DEVICES.

    limit: dev problems of each suite. Columns: calls, tokens through the model, gigabytes read, operations (TFLOP),
    the share of calls that memory bounds (%), ms, and the speed over the first method on the suite.
    """
    shape, (reads, operations) = Shape.of(arch), DEVICES[device]
    rows = []
    for suite in suites:
        prompts, first = dev_prompts(backbone, suite, limit), list[float]()
        for name, options in options_of(backbone, suite, presets).items():
            counted = copy(backbone)
            counted._run = recording = _Recording(backbone._run)
            for prompt_P in prompts:
                decode(counted, prompt_P, **options)
            calls = pd.DataFrame(recording.calls)
            calls["read from memory"] = [shape.bytes_of(call) for call in recording.calls]
            calls["operations"] = [shape.operations_of(call) for call in recording.calls]
            memory, arithmetic = calls["read from memory"] / reads, calls["operations"] / (EFFICIENCY * operations)
            seconds = memory.clip(lower=arithmetic).to_list()
            first = first or seconds
            rows.append(
                {
                    "suite": suite,
                    "method": name,
                    "calls": len(calls) / limit,
                    "tokens": calls["tokens"].sum() / limit,
                    "GB": calls["read from memory"].sum() / limit / 1e9,
                    "TFLOP": calls["operations"].sum() / limit / 1e12,
                    "memory-bound, %": 100 * (memory >= arithmetic).mean(),
                    "ms": 1e3 * sum(seconds) / limit,
                    "speed": ratio_of_totals(first, seconds),
                }
            )
    return pd.DataFrame(rows)
