"""Backbone: a checkpoint on transformers' layers, as decoders see it (`protocol.BackboneLike`).

Shapes: B batch, L length, V vocabulary, n positions whose logits are read, N tokens put after K cached ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._dynamo.utils import counters
from transformers import Cache, DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

RECOMPILATIONS = (
    64  # kinds of calls that a compiled model may see; beyond it torch.compile silently falls back to eager
)


@dataclass(frozen=True)
class Family:
    """An architecture that the registry knows, and what its checkpoints have in common.

    model_type: as config.json says. model: the transformers class; its `forward` takes `positions` (see
    `llada.LLaDAForMaskedLM`). attention: what `attn=` stands for. end_of_turn: the token that closes a turn.
    end_of_turn_ids: by mask id, its id in checkpoints whose folder has no tokenizer.
    """

    model_type: str
    model: type[PreTrainedModel]
    attention: Mapping[str, str]
    end_of_turn: str
    end_of_turn_ids: Mapping[int, int] = field(default_factory=dict)


class _Cache(DynamicCache):
    """Keys leave the rotation as fp32; kept in the values' dtype, which is the one attention casts them to."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return super().update(key_states.to(value_states.dtype), value_states, *args, **kwargs)


class Backbone:
    """A model of a known family and, where its folder has one, its tokenizer.

    Raises ValueError for a config that does not name one EOS id and one mask id of its vocabulary, or a tokenizer of a
    larger vocabulary.
    """

    def __init__(
        self,
        family: Family,
        model: Any,
        tokenizer: PreTrainedTokenizerBase | None,
        name: str,
        compiled: bool = False,
    ) -> None:
        self.model, self.tokenizer, self.name, self.compiled = model.eval(), tokenizer, name, compiled
        self._run: Any = _compile(model) if compiled else model
        config = model.config
        self.vocab_size = int(config.vocab_size)
        self.mask_id, self.eos_id = (self._id(config, field) for field in ("mask_token_id", "eos_token_id"))
        if tokenizer is not None and len(tokenizer) > self.vocab_size:
            raise ValueError(
                f"the tokenizer of {name} has {len(tokenizer)} tokens, its model a vocabulary of {self.vocab_size}: "
                "they do not belong together"
            )
        self.max_length = int(config.max_position_embeddings)
        self.eot_id: int | None = family.end_of_turn_ids.get(self.mask_id)
        if tokenizer is not None:
            self.eot_id = tokenizer.get_vocab().get(family.end_of_turn)

    def _id(self, config: Any, field: str) -> int:
        """A token id that the config names."""
        value = getattr(config, field, None)
        if type(value) is not int or not 0 <= value < self.vocab_size:
            raise ValueError(
                f"the config of {self.name} must name one {field} of its vocabulary, 0 to {self.vocab_size - 1}, "
                f"not {value!r}"
            )
        return value

    def text_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer. Raises ValueError if the model's folder has none."""
        if self.tokenizer is None:
            raise ValueError(f"model {self.name} has no tokenizer; text needs one")
        return self.tokenizer

    @property
    def device(self) -> torch.device:
        device: torch.device = self.model.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self.model.dtype
        return dtype

    @property
    def graphs(self) -> int:
        """Graphs that were compiled so far, in this process; 0 for a model that is not compiled."""
        return int(counters["stats"]["unique_graphs"]) if self.compiled else 0

    @torch.inference_mode()
    def logits(self, ids_BL: torch.Tensor, positions: torch.Tensor | None = None, causal: bool = False) -> torch.Tensor:
        """Logits in the model's dtype, on its device; the vocabulary head runs only where it is read.

        ids_BL: LongTensor (B, L). positions: None for (B, L, V); LongTensor (n,) for those positions in every row,
        (B, n) for each row's own, both giving (B, n, V). causal: attend to earlier positions only (the copula model of
        DCD).
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
        position_N: torch.Tensor,
        positions: torch.Tensor,
        cache: Cache | None = None,
        visible_NK: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, Cache]:
        """Logits of N tokens put after the K cached ones, and the cache with their keys and values at its end.

        ids_1N: LongTensor (1, N). position_N: LongTensor (N,), their positions in the sequence (rotary angles).
        positions: LongTensor (n,), indices into the N whose logits (1, n, V) are read. cache: is changed in place; None
        starts one. visible_NK: bool (N, K + N), what each token attends to; None is everything.
        """
        output = self._run(
            input_ids=ids_1N,
            position_ids=position_N[None],
            attention_mask=None if visible_NK is None else visible_NK[None, None],
            past_key_values=_Cache() if cache is None else cache,
            use_cache=True,
            positions=positions,
        )
        return output.logits, output.past_key_values


def _compile(model: PreTrainedModel) -> Any:
    """The model through torch.compile, with graphs of its own: among those of other models a call takes longer."""
    compiler: Any = torch.compile  # its annotations lack the two options
    if "isolate_recompiles" not in inspect.signature(compiler).parameters:
        raise ValueError(f"compiled=True needs a newer torch than {torch.__version__}; 2.13 was tried")
    return compiler(model, dynamic=True, isolate_recompiles=True, recompile_limit=RECOMPILATIONS)
