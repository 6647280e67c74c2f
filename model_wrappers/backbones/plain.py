"""A model's forward in torch's own functions, for the layers that are known: the same numbers, without their modules.

On small pieces of a sequence a good part of the time goes into what stands between the matrix products: modules that
call modules, tensors that are made anew, angles that are computed at every call. Here a layer is its weights and one
function. It serves Llama's, Qwen2's, Qwen3's and the dense and attention parts of Qwen3-MoE's; what it gives equals
what transformers' layers give bit for bit on a CPU. Weights are read where the model has them, so that changes in place
count; hooks on modules inside a layer are not called. A model with any other layer runs as transformers has it
(`HeadAtPositions.infer`).

Shapes: B batch, N tokens, K keys, D head size, H heads, E hidden size, V vocabulary, n positions whose logits are read,
P positions that the model knows, A = 2 D cosines and sines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers.activations import SiLUActivation
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen2 import modeling_qwen2 as qwen2
from transformers.models.qwen3 import modeling_qwen3 as qwen3
from transformers.models.qwen3_moe import modeling_qwen3_moe as qwen3_moe

from model_wrappers.backbones.heads import HeadAtPositions, read_positions
from model_wrappers.backbones.key_values import Buffers, KeyValues

LAYERS = (llama.LlamaDecoderLayer, qwen2.Qwen2DecoderLayer, qwen3.Qwen3DecoderLayer, qwen3_moe.Qwen3MoeDecoderLayer)
ATTENTIONS = (llama.LlamaAttention, qwen2.Qwen2Attention, qwen3.Qwen3Attention, qwen3_moe.Qwen3MoeAttention)
NORMS = (llama.LlamaRMSNorm, qwen2.Qwen2RMSNorm, qwen3.Qwen3RMSNorm, qwen3_moe.Qwen3MoeRMSNorm)
DENSE = (llama.LlamaMLP, qwen2.Qwen2MLP, qwen3.Qwen3MLP, qwen3_moe.Qwen3MoeMLP)
SPARSE = qwen3_moe.Qwen3MoeSparseMoeBlock
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
SDPA = ("sdpa", "llada_sdpa")
LONGEST_TABLE = 2**17  # positions; angles of models for longer sequences are computed at every call

Forward = Callable[..., torch.Tensor]  # as `HeadAtPositions.infer`
Weights = tuple[torch.Tensor, torch.Tensor | None]  # of a projection, and its bias
Norm = tuple[torch.Tensor, float]  # scale and epsilon


@dataclass(frozen=True, slots=True)
class Layer:
    """The weights of a layer, and what of it still is a module."""

    before: Norm
    projections: tuple[Weights, Weights, Weights]
    norms: tuple[Norm, Norm] | None  # of queries and keys, by head
    out: Weights
    after: Norm
    dense: tuple[Weights, Weights, Weights] | None  # gate, up, down; None: `experts`
    experts: nn.Module
    attention: Any  # what sdpa_attention_forward reads of a module
    head: int
    groups: int


def forward_of(model: Any) -> Forward | None:
    """The fastest forward of a model that gives its own numbers: plain where all layers are known, else `infer`.

    None for a model that has no `infer`.
    """
    infer: Forward | None = getattr(model, "infer", None)
    if getattr(type(model), "infer", None) is not HeadAtPositions.infer:
        return infer
    layers = [_known(layer) for layer in model.model.layers]
    known = [layer for layer in layers if layer is not None]
    own = type(model.model.norm) in NORMS and model.config._attn_implementation in SDPA
    return PlainForward(model, known) if own and len(known) == len(layers) else infer


class PlainForward:
    """Takes and gives what `HeadAtPositions.infer` does."""

    def __init__(self, model: Any, layers: list[Layer]) -> None:
        self._model, self._layers, self._norm = model, layers, _norm_of(model.model.norm)
        self._table_PA = torch.empty(0)  # cosines and sines of all positions
        self._place: tuple[torch.device, torch.dtype] | None = None  # which hidden states it is for

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self._model.device
        return device

    @property
    def is_static(self) -> bool:
        """Whether calls of a shape all do the same: no sparse layers, whose experts change, and angles of a table."""
        has_table = self._model.config.max_position_embeddings <= LONGEST_TABLE
        return has_table and all(layer.dense is not None for layer in self._layers)

    def buffers(self, capacity: int) -> Buffers:
        """Room for the keys and values of `capacity` tokens, zeros."""
        heads = (layer.projections[1][0].shape[0] // layer.head for layer in self._layers)
        shapes = [(1, count, capacity, layer.head) for count, layer in zip(heads, self._layers, strict=True)]
        keys, values = (
            [torch.zeros(shape, dtype=self._model.dtype, device=self.device) for shape in shapes] for _ in range(2)
        )
        return keys, values

    def __call__(
        self,
        ids_BN: torch.Tensor,
        position_BN: torch.Tensor,
        visible_B1NK: torch.Tensor | None,
        cache: KeyValues | None,
        positions: torch.Tensor | None,
    ) -> torch.Tensor:
        """Logits (B, n, V), or (B, N, V) where positions is None."""
        hidden_BNE = self._model.model.embed_tokens(ids_BN)
        rotary = self._rotary(hidden_BNE, position_BN)
        bias_B1NK = None
        if visible_B1NK is not None:  # attention would make this of it in every layer
            bias_B1NK = torch.where(visible_B1NK, 0.0, -torch.inf).to(hidden_BNE.dtype)
        hidden_ME = hidden_BNE.view(-1, hidden_BNE.shape[-1])
        for number, layer in enumerate(self._layers):
            hidden_ME = _run(layer, number, hidden_ME, ids_BN.shape, rotary, bias_B1NK, cache)
        hidden_BNE = _normed(hidden_ME, self._norm).view(hidden_BNE.shape)
        read_BnE = hidden_BNE if positions is None else read_positions(hidden_BNE, positions)
        logits: torch.Tensor = self._model.lm_head(read_BnE)
        return logits

    def _rotary(self, hidden_BNE: torch.Tensor, position_BN: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines, (B, 1, N, D), the sines of the first half with the sign that the rotation gives them."""
        limit, place = self._model.config.max_position_embeddings, (hidden_BNE.device, hidden_BNE.dtype)
        if limit > LONGEST_TABLE or hidden_BNE.shape[1] > limit:
            both_BNA = self._angles(hidden_BNE, position_BN)
        else:
            if self._place != place:
                position_1P = torch.arange(limit, device=hidden_BNE.device)[None]
                self._table_PA, self._place = self._angles(hidden_BNE, position_1P)[0], place
            both_BNA = F.embedding(position_BN, self._table_PA)
        cos_B1ND, sin_B1ND = both_BNA[:, None].chunk(2, -1)
        return cos_B1ND, sin_B1ND

    def _angles(self, hidden_BNE: torch.Tensor, position_BN: torch.Tensor) -> torch.Tensor:
        cos_BND, sin_BND = self._model.model.rotary_emb(hidden_BNE, position_BN)
        first_BNd, second_BNd = sin_BND.chunk(2, -1)
        return torch.cat([cos_BND, -first_BNd, second_BNd], -1)


def _run(
    layer: Layer,
    number: int,
    hidden_ME: torch.Tensor,
    shape: torch.Size,
    rotary: tuple[torch.Tensor, torch.Tensor],
    bias_B1NK: torch.Tensor | None,
    cache: KeyValues | None,
) -> torch.Tensor:
    """One layer on M = B * N tokens, in place. bias_B1NK: 0 where a token attends to a key, -inf where it does not."""
    normed_ME = _normed(hidden_ME, layer.before)
    heads = (*shape, -1, layer.head)
    query, key, value = (F.linear(normed_ME, *weights).view(heads) for weights in layer.projections)
    if layer.norms is not None:
        query, key = (_normed(each, norm) for each, norm in zip((query, key), layer.norms, strict=True))
    # Angles are of positions, the same for all heads: queries and keys are rotated together.
    rotated_BHND = _rotated(torch.cat([query, key], 2).transpose(1, 2), *rotary).to(value.dtype)
    queries = query.shape[2]
    query_BHND, key_BHND = rotated_BHND[:, :queries], rotated_BHND[:, queries:]
    value_BHND = value.transpose(1, 2)
    if cache is not None:
        key_BHND, value_BHND = cache.update(key_BHND, value_BHND, number)
    if layer.groups == 1:
        attended_BHND = F.scaled_dot_product_attention(
            query_BHND, key_BHND, value_BHND, attn_mask=bias_B1NK, scale=layer.attention.scaling
        )
        attended_BNHD = attended_BHND.transpose(1, 2)
    else:
        how = {"scaling": layer.attention.scaling, "is_causal": False}
        attended_BNHD, _ = sdpa_attention_forward(layer.attention, query_BHND, key_BHND, value_BHND, bias_B1NK, **how)
    hidden_ME += F.linear(attended_BNHD.reshape(len(hidden_ME), -1), *layer.out)
    normed_ME = _normed(hidden_ME, layer.after)
    if layer.dense is None:
        hidden_ME += layer.experts(normed_ME.view(*shape, -1)).view(hidden_ME.shape)
    else:
        gate, up, down = layer.dense
        gate_MF = F.silu(F.linear(normed_ME, *gate), inplace=True)
        hidden_ME += F.linear(gate_MF.mul_(F.linear(normed_ME, *up)), *down)
    return hidden_ME


def _normed(values: torch.Tensor, norm: Norm) -> torch.Tensor:
    """Divided by the root mean square over the last dimension, which is taken in fp32, and scaled."""
    scale, epsilon = norm
    exact = values.float()
    root = exact.pow(2).mean(-1, keepdim=True).add_(epsilon).rsqrt_()
    return scale * root.mul(exact).to(values.dtype)


def _rotated(values_BHND: torch.Tensor, cos_B1ND: torch.Tensor, sin_B1ND: torch.Tensor) -> torch.Tensor:
    """Rotated by angles: both halves of a head exchanged, one with its sign turned, which the sines have already."""
    exchanged_BHND = values_BHND.roll(values_BHND.shape[-1] // 2, -1)
    return (values_BHND * cos_B1ND).add_(exchanged_BHND * sin_B1ND)


def _known(layer: nn.Module) -> Layer | None:
    """The weights of a layer; None if it, or anything in it, is not of a known type."""
    attention: Any = getattr(layer, "self_attn", None)
    mlp: Any = getattr(layer, "mlp", None)
    norms: list[Any] = [getattr(layer, name, None) for name in ("input_layernorm", "post_attention_layernorm")]
    norms += [getattr(attention, name) for name in ("q_norm", "k_norm") if hasattr(attention, name)]
    if type(layer) not in LAYERS or type(attention) not in ATTENTIONS or any(type(norm) not in NORMS for norm in norms):
        return None
    projections = [getattr(attention, name) for name in PROJECTIONS]
    is_dense = type(mlp) in DENSE and type(mlp.act_fn) in (nn.SiLU, SiLUActivation)
    linear = [*projections, *([mlp.gate_proj, mlp.up_proj, mlp.down_proj] if is_dense else [])]
    if any(type(each) is not nn.Linear for each in linear) or not (is_dense or type(mlp) is SPARSE):
        return None
    weights = [(each.weight, each.bias) for each in linear]
    before, after, *by_head = (_norm_of(norm) for norm in norms)
    return Layer(
        before=before,
        projections=(weights[0], weights[1], weights[2]),
        norms=(by_head[0], by_head[1]) if by_head else None,
        out=weights[3],
        after=after,
        dense=(weights[4], weights[5], weights[6]) if is_dense else None,
        experts=mlp,
        attention=attention,
        head=attention.head_dim,
        groups=attention.num_key_value_groups,
    )


def _norm_of(norm: Any) -> Norm:
    return norm.weight, norm.variance_epsilon
