"""Backbone: ids -> logits, and the ledger of what that cost.

Shapes: B batch, L length, V vocabulary, n places whose logits are read, N tokens put after K cached ones.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Protocol

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch._dynamo.utils import counters
from transformers import Cache, DynamicCache, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from model_wrappers.llada import LLaDAForMaskedLM

NANO = Path(__file__).parent / "nano"
SHIPPED = {"nano": NANO} | {f"nano-{role}": NANO / role for role in ("fef", "two-stream", "control")}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ATTENTION = {"sdpa": "llada_sdpa"}
RECOMPILATIONS = 64  # kinds of calls that a model may see; at one more torch would go back to eager without a word
OFFICIAL_MASK_ID, OFFICIAL_EOT_ID = 126336, 126348


class BackboneLike(Protocol):
    """What decoders need of a model. Optional besides: `max_length`, `device`, `eot_id`, `extend` (see Backbone)."""

    mask_id: int
    eos_id: int
    vocab_size: int

    def logits(self, ids_BL: torch.Tensor, positions: torch.Tensor | None = None, causal: bool = False) -> torch.Tensor:
        """Logits (B, L, V); with positions (n,) those places of every row, with (B, n) each row's own: (B, n, V)."""
        ...


class _Cache(DynamicCache):
    """Keys leave the rotation as fp32; kept in the values' dtype, which is the one attention casts them to."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return super().update(key_states.to(value_states.dtype), value_states, *args, **kwargs)


class Backbone:
    """A LLaDA-architecture model and, where its folder has one, its tokenizer."""

    def __init__(
        self, model: LLaDAForMaskedLM, tokenizer: PreTrainedTokenizerBase | None, name: str, compiled: bool = False
    ) -> None:
        self.model, self.tokenizer, self.name, self.compiled = model.eval(), tokenizer, name, compiled
        self._run: Any = _compile(model) if compiled else model
        config = model.config
        if not isinstance(config.eos_token_id, int):
            raise ValueError(f"the config of {name} must name one eos_token_id, not {config.eos_token_id!r}")
        self.mask_id = int(config.mask_token_id)
        self.eos_id = config.eos_token_id
        self.vocab_size = int(config.vocab_size)
        self.max_length = int(config.max_position_embeddings)
        self.eot_id = self._find_eot()

    def _find_eot(self) -> int | None:
        if self.tokenizer is not None:
            return self.tokenizer.get_vocab().get("<|eot_id|>")
        return OFFICIAL_EOT_ID if self.mask_id == OFFICIAL_MASK_ID else None

    def text_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer. Raises ValueError if the model's folder has none."""
        if self.tokenizer is None:
            raise ValueError(f"model {self.name} has no tokenizer; text needs one")
        return self.tokenizer

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def graphs(self) -> int:
        """Graphs that were compiled so far, in this process; 0 for a model that is not compiled."""
        return int(counters["stats"]["unique_graphs"]) if self.compiled else 0

    @torch.inference_mode()
    def logits(self, ids_BL: torch.Tensor, positions: torch.Tensor | None = None, causal: bool = False) -> torch.Tensor:
        """Logits in the model's dtype, on its device; the vocabulary head runs only where it is read.

        ids_BL: LongTensor (B, L). positions: None for (B, L, V); LongTensor (n,) for those places in every row, (B, n)
        for each row's own, both giving (B, n, V). causal: attend to earlier places only (the copula model of DCD).
        """
        length = ids_BL.shape[1]
        mask = None
        if causal:
            mask = torch.ones(length, length, dtype=torch.bool, device=ids_BL.device).tril()[None, None]
        return self._run(input_ids=ids_BL, attention_mask=mask, positions=positions, use_cache=False).logits

    @torch.inference_mode()
    def extend(
        self,
        ids_1N: torch.Tensor,
        place_N: torch.Tensor,
        positions: torch.Tensor,
        cache: Cache | None = None,
        visible_NK: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, Cache]:
        """Logits of N tokens put after the K cached ones, and the cache with their keys and values at its end.

        ids_1N: LongTensor (1, N). place_N: LongTensor (N,), their places in the sequence, which rotary angles follow.
        positions: LongTensor (n,), indices into the N whose logits (1, n, V) are read. cache: is changed in place; None
        starts one. visible_NK: bool (N, K + N), what each token attends to; None is everything.
        """
        output = self._run(
            input_ids=ids_1N,
            position_ids=place_N[None],
            attention_mask=None if visible_NK is None else visible_NK[None, None],
            past_key_values=_Cache() if cache is None else cache,
            use_cache=True,
            positions=positions,
        )
        return output.logits, output.past_key_values


def _compile(model: LLaDAForMaskedLM) -> Any:
    """The model through torch.compile, with graphs of its own: among those of other models a call takes longer."""
    compiler: Any = torch.compile  # its annotations lack the two options
    if "isolate_recompiles" not in inspect.signature(compiler).parameters:
        raise ValueError(f"compiled=True needs a newer torch than {torch.__version__}; 2.13 was tried")
    return compiler(model, dynamic=True, isolate_recompiles=True, recompile_limit=RECOMPILATIONS)


class Ledger:
    """A backbone that counts: the one place where cost is counted.

    calls, rows and tokens pushed through `logits` since it was made.
    """

    def __init__(self, backbone: BackboneLike) -> None:
        self._backbone = backbone
        self.mask_id, self.eos_id, self.vocab_size = backbone.mask_id, backbone.eos_id, backbone.vocab_size
        self.eot_id: int | None = getattr(backbone, "eot_id", None)
        self.device = torch.device(getattr(backbone, "device", "cpu"))
        self.max_length: int | None = getattr(backbone, "max_length", None)
        self.can_extend = hasattr(backbone, "extend")
        self.calls = self.rows = self.tokens = 0

    def is_model_of(self, other: Ledger) -> bool:
        """Whether both count the same backbone."""
        return self._backbone is other._backbone

    def logits(self, ids_BL: torch.Tensor, positions: torch.Tensor | None = None, causal: bool = False) -> torch.Tensor:
        """The backbone's logits, entered in the ledger."""
        self.calls += 1
        self.rows += ids_BL.shape[0]
        self.tokens += ids_BL.numel()
        return self._backbone.logits(ids_BL, positions=positions, causal=causal)

    def extend(
        self,
        ids_1N: torch.Tensor,
        place_N: torch.Tensor,
        positions: torch.Tensor,
        cache: Cache | None = None,
        visible_NK: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, Cache]:
        """The backbone's `extend`, entered in the ledger: one row, N tokens."""
        self.calls += 1
        self.rows += 1
        self.tokens += ids_1N.numel()
        backbone: Any = self._backbone
        logits, cache = backbone.extend(ids_1N, place_N, positions, cache=cache, visible_NK=visible_NK)
        return logits, cache


def model_folder(name: str | Path) -> Path:
    """Where the files of a model lie if it is shipped or a local folder; for a hub id a path that does not exist."""
    return SHIPPED.get(str(name), Path(name))


def load_backbone(
    name: str | Path,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype | None = None,
    attn: str = "sdpa",
    compiled: bool = False,
) -> Backbone:
    """Load a shipped model (SHIPPED: "nano" and what was trained from it), a local folder or a hub id.

    Folders and hub ids are in LLaDA's format or ours.
    dtype: a name or torch.dtype; None is bfloat16 on a GPU and float32 on a CPU. attn: "sdpa". compiled: run the model
    through torch.compile. A folder without a tokenizer loads too; then only `decode` on ids works. Raises ValueError
    for anything that cannot be loaded.
    """
    torch_device = device_named(device)
    torch_dtype = dtype_named(dtype, torch_device)
    if attn not in ATTENTION:
        raise ValueError(f"unknown attn {attn!r}; valid: {', '.join(ATTENTION)}")
    folder = model_folder(name)
    if folder.exists() and not (folder / "config.json").exists():
        raise ValueError(f"{folder} has no config.json: not a model folder; give nano, a folder or a hub id")
    source = str(folder) if folder.exists() else str(name)
    try:
        loaded: Any = LLaDAForMaskedLM.from_pretrained(
            source, dtype=torch_dtype, attn_implementation=ATTENTION[attn], output_loading_info=True
        )
    except (OSError, KeyError, ValueError, RuntimeError, SafetensorError, StrictDataclassError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"cannot load model {name!s}: {reason} (valid: nano, a local folder, a hub id)") from error
    model, info = loaded
    if info["missing_keys"]:  # they would stay random
        raise ValueError(f"cannot load model {name!s}: no weights for {', '.join(sorted(info['missing_keys']))}")
    return Backbone(model.to(torch_device), _tokenizer(source), str(name), compiled)


def device_named(device: str | torch.device) -> torch.device:
    """The device. Raises ValueError if there is none of that name here."""
    try:
        torch_device = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"unknown device {device!r}; valid: cpu, cuda, cuda:0, ...") from error
    if torch_device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {device!s} was asked for, but torch sees no CUDA device; use cpu")
    return torch_device


def dtype_named(dtype: str | torch.dtype | None, device: torch.device) -> torch.dtype:
    """The dtype; None is bfloat16 on a GPU and float32 on a CPU. Raises ValueError for an unknown name."""
    if dtype is None:
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}; valid: {', '.join(DTYPES)}")
    return DTYPES[dtype]


def _tokenizer(source: str) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a model's folder or hub id; None where it has none."""
    try:
        return PreTrainedTokenizerFast.from_pretrained(source)
    except (OSError, ValueError, TypeError) as error:
        if (Path(source) / "tokenizer.json").exists():
            raise ValueError(f"cannot load the tokenizer of {source}: {error}") from error
        return None
