"""Fakes for the tests: backbones of made-up logits, tiny LLaDA models. `harness/audit/oracle.py`
has the exact ones.

Shapes: B batch, L length, V vocabulary.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from harness.audit.fef import random_llada
from harness.audit.oracle import RowBackbone
from harness.records.files import TraceRecord, packed_columns
from model_wrappers import METHODS, Backbone, Decoded
from model_wrappers.backbones.protocol import BackboneLike, Ledger
from model_wrappers.backbones.registry import NANO
from model_wrappers.request import Request
from model_wrappers.sampling import Sampler
from model_wrappers.trace import EventLog

# The decoders of models with a mask that attend to the whole sequence.
WHOLE = [
    name for name, each in METHODS.items() if not (each.blocks_only or each.canvases or each.causal)
]
# The decoders that run on logits alone, without attention masks and caches: the backbones below
# have nothing else.
ON_LOGITS = [method for method in WHOLE if not METHODS[method].needs_extend]


class FixedLogits(RowBackbone):
    """The same logits (L, V) whatever the input. The mask is the last id."""

    def __init__(self, logits_LV: torch.Tensor, eos_id: int = 0) -> None:
        super().__init__(logits_LV.shape[1], logits_LV.shape[1] - 1, eos_id)
        self._logits_LV = logits_LV

    def row_logits(self, row: tuple[int, ...], causal: bool) -> torch.Tensor:
        return self._logits_LV


class RandomConditionals(RowBackbone):
    """Distributions of full support: an arbitrary, seeded function of the whole row, and of no
    joint distribution.

    Ids 0 .. real - 1 are tokens and the mask is id `real`; its logit is finite, so only a decoder's
    own exclusion keeps it out. causal: a distribution is a function of the row up to its position.
    """

    def __init__(self, real: int = 3, seed: int = 0, scale: float = 1.5, eos_id: int = 0) -> None:
        super().__init__(real + 1, real, eos_id)
        self._seed, self._scale = seed, scale

    def row_logits(self, row: tuple[int, ...], causal: bool) -> torch.Tensor:
        seen = [row[: position + 1] if causal else row for position in range(len(row))]
        return torch.stack([self._logits_at(position, ids) for position, ids in enumerate(seen)])

    def _logits_at(self, position: int, seen: tuple[int, ...]) -> torch.Tensor:
        digest = hashlib.blake2b(
            repr((self._seed, position, seen)).encode(), digest_size=7
        ).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest, "big"))
        return self._scale * torch.randn(self.vocab_size, generator=generator, dtype=torch.float64)


class Unmasked(RandomConditionals):
    """Never predicts the mask, which LLaDA's choice would leave in place."""

    def row_logits(self, row: tuple[int, ...], causal: bool) -> torch.Tensor:
        return super().row_logits(row, causal).index_fill(1, torch.tensor([self.mask_id]), -1e4)


class Recorder:
    """A backbone that keeps the inputs of every call."""

    def __init__(self, backbone: BackboneLike) -> None:
        self._backbone = backbone
        self.mask_id, self.eos_id, self.vocab_size = (
            backbone.mask_id,
            backbone.eos_id,
            backbone.vocab_size,
        )
        self.inputs: list[torch.Tensor] = []

    def logits(
        self, ids_BL: torch.Tensor, positions: torch.Tensor | None = None, causal: bool = False
    ) -> torch.Tensor:
        self.inputs.append(ids_BL.clone())
        return self._backbone.logits(ids_BL, positions=positions, causal=causal)


def request_for(backbone: BackboneLike, row: list[int], start: int = 0) -> Request:
    """A greedy request on a sequence of ids, the response beginning at `start`; the model drafts
    for itself."""
    ledger = Ledger(backbone)
    return Request(ledger, ledger, torch.tensor([row]), start, len(row) - start, 0.0, Sampler(0))


def logits_under(
    backbone: Backbone, ids: list[int], positions: list[int], visible_LL: torch.Tensor
) -> torch.Tensor:
    """Logits (L, V) of ids at positions under a mask of their own (row sees column), in one pass
    without a cache."""
    with torch.inference_mode():
        output = backbone.model(
            input_ids=torch.tensor([ids]),
            position_ids=torch.tensor([positions]),
            attention_mask=visible_LL[None, None],
            use_cache=False,
        )
    logits_LV: torch.Tensor = output.logits[0]
    return logits_LV


def trace_of(log: EventLog, out: Decoded, mask_id: int) -> TraceRecord:
    """The record of what was logged of a response."""
    columns = packed_columns(log)
    return TraceRecord(
        method="m", suite="s", item=0, length=len(out.tokens), mask=mask_id, columns=columns
    )


def tiny_llada(
    seed: int = 0,
    vocab_size: int = 40,
    std: float = 0.3,
    eos_id: int | None = None,
    eot_id: int | None = None,
) -> Backbone:
    """A tiny random LLaDA model; the mask is its last id, EOS the one before unless given."""
    backbone = random_llada(vocab_size - 1, seed, length=64, std=std)
    backbone.model.float()
    if eos_id is not None:
        backbone.eos_id = eos_id
    backbone.eot_id = eot_id
    return backbone


def changed_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> Path:
    """A checkpoint in one file whose weights `change` alters."""
    file = folder / "model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file, metadata={"format": "pt"})
    return folder


def add_nanos_tokenizer(folder: Path) -> Path:
    """A checkpoint that has nano's tokenizer and chat template too."""
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (folder / name).write_bytes((NANO / name).read_bytes())
    return folder


OFFICIAL_CONFIG: dict[str, Any] = {
    **{
        "model_type": "llada",
        "architectures": ["LLaDAModelLM"],
        "block_type": "llama",
        "activation_type": "silu",
    },
    **{
        "d_model": 32,
        "n_layers": 2,
        "n_heads": 4,
        "n_kv_heads": 4,
        "mlp_hidden_size": 48,
        "max_sequence_length": 64,
    },
    **{
        "vocab_size": 40,
        "embedding_size": 40,
        "mask_token_id": 39,
        "eos_token_id": 38,
        "pad_token_id": 38,
    },
    **{"rope": True, "rope_theta": 500000.0, "rope_full_precision": True, "rms_norm_eps": 1e-5},
    **{"layer_norm_type": "rms", "weight_tying": False, "alibi": False, "scale_logits": False},
    **{"include_bias": False, "include_qkv_bias": False},
}


def official_checkpoint(folder: Path, sharded: bool = False, seed: int = 0, **changes: Any) -> Path:
    """Write a tiny random checkpoint in the official LLaDA format, in one file or two; `changes` go
    into its config."""
    config = OFFICIAL_CONFIG | changes
    width, mlp = config["d_model"], config["mlp_hidden_size"]
    kv = width // config["n_heads"] * config["n_kv_heads"]
    block_shapes: dict[str, tuple[int, ...]] = {
        **{
            "q_proj": (width, width),
            "k_proj": (kv, width),
            "v_proj": (kv, width),
            "attn_out": (width, width),
        },
        **{"ff_proj": (mlp, width), "up_proj": (mlp, width), "ff_out": (width, mlp)},
        **{"attn_norm": (width,), "ff_norm": (width,)},
    }
    ends = {
        "wte": (config["vocab_size"], width),
        "ln_f": (width,),
        "ff_out": (config["vocab_size"], width),
    }
    shapes = ends | {
        f"blocks.{i}.{name}": shape
        for i in range(config["n_layers"])
        for name, shape in block_shapes.items()
    }
    generator = torch.Generator().manual_seed(seed)
    weights = {
        f"model.transformer.{name}.weight": 0.3 * torch.randn(shape, generator=generator)
        + (len(shape) == 1)
        for name, shape in shapes.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if not sharded:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    names = sorted(weights)
    parts = {
        "model-00001-of-00002.safetensors": names[::2],
        "model-00002-of-00002.safetensors": names[1::2],
    }
    for file, part in parts.items():
        save_file({name: weights[name] for name in part}, folder / file, metadata={"format": "pt"})
    index = {
        "metadata": {"total_size": sum(weight.nbytes for weight in weights.values())},
        "weight_map": {name: file for file, part in parts.items() for name in part},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
