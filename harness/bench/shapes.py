"""Large models by their shape: random weights of one, and what decoding would take with it at
least, by data sheets.

What a pass costs depends on the shape, not on the values. For an estimate a small model decodes,
and each of its calls is priced at a large one's shape, by reading weights, keys and values, or by
its operations, whichever takes longer. Launches, the sampler and activations are left out, which
favours many small calls.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd
import torch

from harness.bench.decoders import dev_prompts, options_of
from harness.errors import UserError
from harness.methods.presets import Preset
from harness.records.environment import free_bytes
from harness.stats import ratio_of_totals
from model_wrappers import Backbone, decode
from model_wrappers.backbones.llada import FAMILY, OFFICIAL_MASK_ID, LLaDAConfig, LLaDAForMaskedLM
from model_wrappers.backbones.plain import Call
from model_wrappers.backbones.registry import device_named, dtype_named
from model_wrappers.options import meant

STD = 0.02
SHAPES: dict[str, dict[str, Any]] = {
    "llada-8b": {  # GSAI-ML/LLaDA-8B-Instruct
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "intermediate_size": 12288,
        "vocab_size": 126464,
        "max_position_embeddings": 4096,
        "mask_token_id": OFFICIAL_MASK_ID,
        "eos_token_id": 126081,
    },
    "llada-tiny": {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "intermediate_size": 192,
        "vocab_size": 512,
        "max_position_embeddings": 512,
        "mask_token_id": 511,
        "eos_token_id": 510,
        "bos_token_id": None,
    },
}
ROPE = {"rope_type": "default", "rope_theta": 500000.0}
# Bytes of memory and operations in bfloat16, without sparsity, a second: NVIDIA's data sheets
# (A100: 80 GB, SXM).
DEVICES = {
    "a100": (2.039e12, 312e12),
    "h100": (3.35e12, 989e12),
    "h200": (4.8e12, 989e12),
    "l40s": (0.864e12, 362e12),
    "rtx4090": (1.008e12, 165e12),
}
EFFICIENCY = 0.5  # of the operations of a data sheet, in large products
BYTES = 2  # of a weight, key or value


def random_backbone(
    arch: str,
    device: str = "cpu",
    dtype: str | None = None,
    layers: int | None = None,
    cuda_graphs: bool = False,
) -> Backbone:
    """A model of one of SHAPES with normal weights of standard deviation STD; prints the memory it
    needs.

    layers: instead of the shape's. Raises UserError for an unknown shape, or weights that do not
    fit into free memory.
    """
    if arch not in SHAPES:
        raise UserError(f"unknown architecture {arch!r}{meant(arch, SHAPES)}")
    torch_device = device_named(device, cuda_graphs)
    shape = SHAPES[arch] | ({} if layers is None else {"num_hidden_layers": layers})
    with torch.device("meta"):  # shapes alone, to refuse before anything is allocated
        model: Any = LLaDAForMaskedLM(LLaDAConfig(**shape, rope_parameters=ROPE))
    model = model.to(dtype_named(dtype, torch_device))
    needed = sum(weight.nbytes for weight in model.parameters())
    free = free_bytes(torch_device)
    size = (
        f"{arch}, layers: {shape['num_hidden_layers']}, {model.dtype}: the weights need"
        f" {needed / 1e9:.2f} GB"
    )
    size += f", and {free / 1e9:.2f} GB are free on {torch_device}"
    print(size)
    if needed > free:
        raise UserError(f"{size}; free some, or give fewer --layers or bfloat16")
    model.to_empty(device=torch_device)
    generator = torch.Generator(torch_device).manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:  # of a norm
                weight.fill_(1)
            else:
                weight.normal_(0, STD, generator=generator)
    return Backbone(FAMILY, model, None, arch, cuda_graphs=cuda_graphs)


class Work(NamedTuple):
    """A call of the model: tokens through it, positions whose logits are read, keys it reads, pairs
    that attend."""

    tokens: int
    read: int
    keys: int
    pairs: int


@dataclass(frozen=True)
class Shape:
    """Sizes of a large model: weights of all layers and of the head, width of hidden states, what a
    token keeps as keys and values of all layers, and number of layers.
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
        width = sizes["hidden_size"]
        depth = sizes["num_hidden_layers"]
        inner = sizes["intermediate_size"]
        kept = width * sizes["num_key_value_heads"] // sizes["num_attention_heads"]
        layer = 2 * width * width + 2 * width * kept + 3 * width * inner
        return cls(depth * layer, width * sizes["vocab_size"], width, 2 * depth * kept, depth)

    def bytes_of(self, call: Work) -> int:
        """What a call reads."""
        return BYTES * (self.layers + self.head + self.keys * call.keys)

    def operations_of(self, call: Work) -> int:
        """Multiplications and additions of a call."""
        return (
            2 * (self.layers * call.tokens + self.head * call.read)
            + 4 * self.width * self.depth * call.pairs
        )


class _CallCounter:
    """Takes and gives what `HeadAtPositions.infer` does, and keeps what each call has to do."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self.calls: list[Work] = []

    def __call__(self, *call: Any) -> Any:
        ids_BN, _, visible_B1NK, cache, positions = Call(*call)
        rows, tokens = ids_BN.shape
        keys = tokens if cache is None else cache.filled
        pairs = (
            rows * tokens * keys
            if visible_B1NK is None
            else int(visible_B1NK.expand(rows, -1, -1, -1).sum())
        )
        read = tokens if positions is None else positions.shape[-1]
        self.calls.append(
            Work(ids_BN.numel(), rows * read, rows * keys if cache is None else keys, pairs)
        )
        return self._run(*call)


def estimate(
    backbone: Backbone,
    device: str,
    suites: list[str],
    limit: int,
    presets: dict[str, Preset],
    arch: str = "llada-8b",
) -> pd.DataFrame:
    """A row for each method and suite: means of a response to `limit` dev problems, priced at
    `arch` on one of DEVICES.

    Columns: calls, tokens through the model, GB read, operations, calls that memory bounds (%), ms,
    speed over the first.
    """
    shape = Shape.of(arch)
    (reads, operations) = DEVICES[device]
    rows = []
    for suite in suites:
        prompts = dev_prompts(backbone, suite, limit)
        first = list[float]()
        for name, options in options_of(backbone, suite, presets).items():
            counted = copy(backbone)
            counted._run = recording = _CallCounter(backbone._run)
            for prompt_P in prompts:
                decode(counted, prompt_P, **options)
            calls = pd.DataFrame(recording.calls)
            calls["read from memory"] = [shape.bytes_of(call) for call in recording.calls]
            calls["operations"] = [shape.operations_of(call) for call in recording.calls]
            memory = calls["read from memory"] / reads
            arithmetic = calls["operations"] / (EFFICIENCY * operations)
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
