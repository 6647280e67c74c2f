"""nano as official decoders call a model: in the class that they were written for, or ours under
their arguments."""

import importlib
import sys
import types
from pathlib import Path
from typing import Any

import torch

from model_wrappers import Backbone


class Counted:
    """A model that counts its calls."""

    def __init__(self, model: Any) -> None:
        self.model, self.calls, self.device, self.config = (
            model,
            0,
            torch.device("cpu"),
            model.config,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.model(*args, **kwargs)


class OursAsTheirs:
    """Our LLaDA under the arguments that official decoders call theirs with."""

    def __init__(self, backbone: Backbone) -> None:
        self._model, self.config = backbone.model, backbone.model.config

    def __call__(
        self,
        input_ids: torch.Tensor,
        attention_mask: Any = None,
        position_ids: Any = None,
        **_: Any,
    ) -> Any:
        if position_ids is not None and position_ids.dim() == 1:
            position_ids = position_ids[None]
        if attention_mask is not None and attention_mask.dim() == 2:  # all ones: nothing is padded
            attention_mask = None
        given = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "position_ids": position_ids,
        }
        return self._model(**given, use_cache=False)


class OursBeforePosition:
    """Our LLaDA as Dream's sampler calls its model: the logits of a token stand at the position
    before it."""

    def __init__(self, backbone: Backbone) -> None:
        self._model = backbone.model
        self.config = backbone.model.config

    def __call__(self, input_ids: torch.Tensor, attention_mask: Any, position_ids: Any) -> Any:
        logits = self._model(input_ids=input_ids, use_cache=False).logits
        return types.SimpleNamespace(logits=logits.roll(-1, 1))


class TheirClass:
    """The official LLaDA under the arguments of every official decoder."""

    def __init__(self, model: Any) -> None:
        self._model, self.config = model, model.config

    def __call__(self, input_ids: torch.Tensor, attention_mask: Any = None, **_: Any) -> Any:
        return self._model(input_ids)  # attention masks are all ones: nothing is padded


class ExactPast:
    """Our LLaDA as FreeDave calls its model, with the prefix's tokens in the place of its keys and
    values.

    FreeDave runs on a prefix cache alone, whose keys and values are not those of the sequence any
    more. With the tokens it is the algorithm of the paper, whose tokens are LLaDA's.
    """

    def __init__(self, backbone: Backbone) -> None:
        self._model, self.config = backbone.model, backbone.model.config

    def __call__(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor, past_key_values: Any, **_: Any
    ) -> Any:
        first = int(position_ids.min())
        if first == 0:
            past_key_values.ids = input_ids
            return self._model(input_ids=input_ids, use_cache=False)
        prefix = past_key_values.ids[:, :first].expand(len(input_ids), -1)
        output = self._model(input_ids=torch.cat([prefix, input_ids], 1), use_cache=False)
        return types.SimpleNamespace(logits=output.logits[:, first:])


class OursInBlocks:
    """Our LLaDA as SDAR's sampler calls its model: a block on top of kept keys and values, which it
    may add to them."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone, self.config = backbone, backbone.model.config

    def eval(self) -> None:
        """It is."""

    def __call__(
        self,
        ids_1N: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        **how: Any,
    ) -> Any:
        past, position_N, read_N = (
            how["past_key_values"],
            position_ids[0],
            torch.arange(ids_1N.shape[1]),
        )
        kept = getattr(past, "ours", None)
        keeps = how["store_kv"] or kept is None
        logits, cache = self._backbone.extend(
            ids_1N,
            position_N,
            read_N,
            kept,
            attention_mask[0].bool(),
            "append" if keeps else "none",
        )
        if how["store_kv"]:
            past.ours, past.get_seq_length = cache, cache.get_seq_length
        return types.SimpleNamespace(logits=logits)


class OursInWholeBlocks:
    """Our LLaDA as the samplers of LLaDA2 call their model: all blocks up to the current one, with
    their mask."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone, self.config = backbone, backbone.model.config

    def __call__(
        self, ids_1L: torch.Tensor, attention_mask: torch.Tensor, position_ids: torch.Tensor
    ) -> Any:
        position_L = position_ids[0]
        logits, _ = self._backbone.extend(
            ids_1L, position_L, position_L, visible_NK=attention_mask[0, 0] == 0
        )
        return types.SimpleNamespace(logits=logits)


class OursInKeptBlocks:
    """Our LLaDA as the sampler of Fast-dLLM v2 calls its model: a block behind those it kept."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone, self.config = backbone, backbone.model.config

    def __call__(
        self,
        input_ids: torch.Tensor,
        past_key_values: Any = None,
        update_past_key_values: bool = False,
        block_size: int | None = None,
        **_: Any,
    ) -> Any:
        kept = 0 if past_key_values is None else past_key_values.get_seq_length()
        position_N = torch.arange(kept, kept + input_ids.shape[1])
        visible_NK = None
        if block_size is not None:
            visible_NK = (
                torch.arange(len(position_N) + kept) // block_size
                <= position_N[:, None] // block_size
            )
        keeps = update_past_key_values or past_key_values is None
        write: Any = "append" if keeps else "none"
        read_N = torch.arange(len(position_N))
        logits, cache = self._backbone.extend(
            input_ids, position_N, read_N, past_key_values, visible_NK, write
        )
        return types.SimpleNamespace(logits=logits, past_key_values=cache)


def fast_dllm_model(folder: Path, backbone: Backbone) -> Any:
    """nano's weights in the LLaDA class of Fast-dLLM, whose attention takes cached keys and
    values."""
    sys.path.insert(0, str(folder / "llada"))
    modeling = importlib.import_module("model.modeling_llada")
    configuration = importlib.import_module("model.configuration_llada")
    ours = backbone.model.config
    sizes = {
        **{
            "d_model": ours.hidden_size,
            "n_layers": ours.num_hidden_layers,
            "n_heads": ours.num_attention_heads,
        },
        **{"n_kv_heads": ours.num_key_value_heads, "mlp_hidden_size": ours.intermediate_size},
        **{
            "max_sequence_length": ours.max_position_embeddings,
            "rope_theta": ours.rope_parameters["rope_theta"],
        },
        **dict.fromkeys(("vocab_size", "embedding_size"), ours.vocab_size),
        **dict.fromkeys(("rms_norm_eps", "layer_norm_eps"), ours.rms_norm_eps),
        **dict.fromkeys(("eos_token_id", "pad_token_id"), ours.eos_token_id),
        **{"mask_token_id": ours.mask_token_id, "weight_tying": ours.tie_word_embeddings},
    }
    kinds = {
        "block_type": "llama",
        "activation_type": "silu",
        "layer_norm_type": "rms",
        "init_device": "cpu",
    }
    on = dict.fromkeys(("rope", "rope_full_precision"), True)
    off = dict.fromkeys(("alibi", "include_bias", "include_qkv_bias", "flash_attention"), False)
    no_dropout = dict.fromkeys(("attention_dropout", "residual_dropout", "embedding_dropout"), 0.0)
    config = configuration.LLaDAConfig(**sizes, **kinds, **on, **off, **no_dropout)
    config.use_cache = False  # transformers 5 does not set it any more
    # transformers 5 asks every class which weights are tied, by another name than this one's time
    # knew.
    modeling.LLaDAModelLM.all_tied_weights_keys = {}
    model = modeling.LLaDAModelLM(config, init_params=False)
    names = {
        **{
            "model.embed_tokens.": "model.transformer.wte.",
            "model.norm.": "model.transformer.ln_f.",
        },
        **{"lm_head.": "model.transformer.ff_out.", "model.layers.": "model.transformer.blocks."},
        **{".input_layernorm.": ".attn_norm.", ".post_attention_layernorm.": ".ff_norm."},
        **{f".self_attn.{each}_proj.": f".{each}_proj." for each in "qkv"},
        **{".self_attn.o_proj.": ".attn_out.", ".mlp.gate_proj.": ".ff_proj."},
        **{".mlp.up_proj.": ".up_proj.", ".mlp.down_proj.": ".ff_out."},
    }
    weights = {}
    for name, weight in backbone.model.state_dict().items():
        for new, old in names.items():
            name = name.replace(new, old)
        weights[name] = weight
    wanted = set(model.state_dict())
    model.load_state_dict(
        {name: weight for name, weight in weights.items() if name in wanted}, strict=True
    )
    return model.eval()
