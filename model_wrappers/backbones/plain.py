"""A model's forward in plain torch functions, for known layers: the same numbers without modules.

On small pieces of a sequence much of the time is spent between the matrix products: modules call
modules, tensors are allocated, angles are computed at every call. Here a layer is its weights and
one function. It computes Llama, Qwen2, Qwen3, and Qwen3-MoE and GLM-4-MoE but for their experts,
and on a CPU its results equal those of transformers bit for bit. Before every call the modules are
examined: if a hook, module, parameter or method is not the known one, the model runs by the layers
of transformers (`HeadAtPositions.infer`).

Shapes: B batch, N tokens, K keys, D head size, H heads, E hidden size, V vocabulary, n positions
whose logits are read, M tokens of all calls, P positions that the model knows, R numbers of a head
that rotate (D, or the first of them), A = 2 R cosines and sines.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.activations import SiLUActivation
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from model_wrappers.backbones.flop import Shapes
from model_wrappers.backbones.heads import HeadAtPositions, read_positions
from model_wrappers.backbones.placement import placed_forward
from model_wrappers.backbones.protocol import Buffers, KeyValues

# Known models, by the beginnings of their layers' class names. By name and not by class, so that no
# file of transformers is imported whose model is not loaded.
MODELS = ("Llama", "Qwen2", "Qwen3", "Qwen3Moe", "Glm4Moe")
SPARSE = ("Qwen3MoeSparseMoeBlock", "Glm4MoeMoE")
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
SDPA = ("sdpa", "llada_sdpa")
# Positions; for models of longer sequences the angles are computed at every call.
LONGEST_TABLE = 2**17

Forward = Callable[..., Tensor]  # as `HeadAtPositions.infer`
Weights = tuple[Tensor, Tensor | None]  # of a projection, and its bias
Norm = tuple[Tensor, dict[str, Any]]  # scale, and the attributes of the module


class Call(NamedTuple):
    """The arguments of `HeadAtPositions.infer`."""

    ids_BN: Tensor
    position_BN: Tensor
    visible_B1NK: Tensor | None
    cache: KeyValues | None
    positions: Tensor | None

    def bias(self, dtype: torch.dtype) -> Tensor | None:
        """The attention bias: 0 if a token attends to a key, else -inf.

        It is made once a call; from a bool mask attention would make it in every layer.
        """
        if self.visible_B1NK is None:
            return None
        return torch.where(self.visible_B1NK, 0.0, -torch.inf).to(dtype)


@dataclass(frozen=True, slots=True)
class Layer:
    """The weights of a layer, and those of its parts that still run as modules."""

    before: Norm
    projections: tuple[Weights, Weights, Weights]
    norms: tuple[Norm, Norm] | None  # of queries and keys, by head
    out: Weights
    after: Norm
    dense: tuple[Weights, Weights, Weights] | None  # gate, up, down; None: `experts`
    experts: nn.Module
    attention: Any  # the module, from which sdpa_attention_forward reads attributes
    head: int
    groups: int


class ModelForward:
    """Runs a model in the fastest way that gives its numbers, chosen at every call.

    It is called as `HeadAtPositions.infer`.

    Attributes:
        model: the model; it may be replaced.
        plain: the forward in plain functions (None: the model has unknown layers, or an `infer` of
            its own).
        is_changed: whether the last call found that modules were changed after loading, and so ran
            the model's own code.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.is_changed = False
        self._loaded = model
        self._base = model.base_model
        # Of a model on several devices, which accelerate's hooks are part of.
        self._placed = placed_forward(model)
        self._base_placed = placed_forward(model.base_model)
        # None: see weights.RemoteBackbone
        self._infer: Forward | None = getattr(model, "infer", None)
        self.plain: PlainForward | None = None
        if getattr(type(model), "infer", None) is HeadAtPositions.infer:
            plain = PlainForward(model)
            self.plain = plain if plain.is_plain else None

    def __call__(self, *call: Any) -> Tensor:
        """Logits (B, n, V) of a `Call`, or (B, N, V) where its positions are None."""
        return self.current()(*call)

    def packed(self, calls: Sequence[Call]) -> list[Tensor]:
        """The logits of several calls."""
        run = self.current()
        if run is self.plain:
            return self.plain.packed(calls)
        return [run(*call) for call in calls]

    def current(self) -> Forward:
        """The forward that gives the model's numbers now."""
        loaded = self._loaded
        is_loaded = self.model is loaded and loaded.base_model is self._base
        is_hooked = _is_hooked(loaded, self._placed) or _is_hooked(self._base, self._base_placed)
        # A hook or a replaced model may compute anything: only calling the model itself is right.
        if not is_loaded or is_hooked:
            self.is_changed = True
            return self._call_model
        self.is_changed = self.plain is not None and not self.plain.see()
        if self.plain is not None and not self.is_changed:
            return self.plain
        assert self._infer is not None, "a model that has none runs by itself"
        return self._infer

    def _call_model(self, *call: Any) -> Tensor:
        """Call the model itself, with its hooks, adapters and compilation, by transformers' names
        of the arguments that this call needs."""
        ids_BN, position_BN, visible_B1NK, cache, positions = Call(*call)
        options: dict[str, Any] = {}
        if cache is not None:
            if visible_B1NK is None:
                shape = (1, 1, ids_BN.shape[1], cache.filled)
                visible_B1NK = ids_BN.new_ones(shape, dtype=torch.bool)
            options = {"past_key_values": cache, "use_cache": True, "position_ids": position_BN}
        if visible_B1NK is not None:
            options["attention_mask"] = visible_B1NK
        return read_positions(self.model(input_ids=ids_BN, **options).logits, positions)


class PlainForward:
    """The forward in plain functions, called as `HeadAtPositions.infer` while `see` returns True.

    Attributes:
        is_plain: whether all layers are known.
        shapes: the layers' shapes; None if they are not known, or not dense.
        versions: how often the weights were read from the modules; it grows if modules change.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._inner = model.model
        self._config = model.config
        self.versions = 0
        self._learn()

    def see(self) -> bool:
        """Examine the model's modules, and return whether all its layers are known."""
        if self._seen != self._look():
            self._learn()
        return self.is_plain

    def _learn(self) -> None:
        """Read the weights of all known layers, and remember what they were read from."""
        self._learn_modules()
        inner = self._inner
        layers = [_known(layer) for layer in inner.layers]
        self._layers = [layer for layer in layers if layer is not None]
        self.is_plain = (
            len(self._layers) == len(layers)
            and _is_of(inner.norm, "RMSNorm")
            and _is_untouched(inner.norm)
            and _is_untouched(inner.rotary_emb)
            and self._config._attn_implementation in SDPA
        )
        if self.is_plain:
            self._norm = _norm_of(inner.norm)
        self.shapes = _shapes_of(self._layers, self._model.lm_head) if self.is_plain else None
        # Cosines and sines of all positions, and the device and dtype that they are for.
        self._table_PA = torch.empty(0)
        self._place: tuple[torch.device, torch.dtype] | None = None
        self._seen = self._look()
        self.versions += 1

    def _learn_modules(self) -> None:
        """Collect what `_look` examines: modules, their parts and hooks, and the angles'
        buffers."""
        inner = self._inner
        self._modules = [*inner.layers.modules(), inner.norm, *inner.rotary_emb.modules()]
        self._kinds: list[Any] = [*dict.fromkeys(map(type, self._modules))]
        self._attributes = [vars(module) for module in self._modules]
        self._parts = []
        self._hooks = []
        for attributes in self._attributes:
            parts = [attributes[name] for name in ("_modules", "_parameters", "_buffers")]
            self._parts += [part for part in parts if part]
            self._hooks += [attributes["_forward_hooks"], attributes["_forward_pre_hooks"]]
        # A buffer that was made in inference mode, as when a decoder loads a model, has no version
        # that counts its changes.
        self._rotary_buffers = [
            buffer for buffer in inner.rotary_emb.buffers() if not buffer.is_inference()
        ]

    def _look(self) -> tuple[Any, ...]:
        """All that the numbers depend on, except the values of weights, in a form to compare.

        It runs before every call, and so must be cheap: identities, types and counts.
        """
        named = self._inner._modules
        return (
            (id(named["layers"]), id(named["norm"]), id(named["rotary_emb"])),
            [*map(id, chain.from_iterable([part.values() for part in self._parts]))],
            [*map(type, self._modules)],
            [kind.forward for kind in self._kinds],
            sum(map(len, self._attributes)),
            sum(map(len, self._hooks)),
            [buffer._version for buffer in self._rotary_buffers],
        )

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self._model.device

    @property
    def is_static(self) -> bool:
        """Whether all calls of a shape run the same kernels, as CUDA graphs need.

        Sparse layers do not, as the experts change, nor do angles that are computed at every call.
        """
        has_table = self._config.max_position_embeddings <= LONGEST_TABLE
        return has_table and all(layer.dense is not None for layer in self._layers)

    def buffers(self, capacity: int) -> Buffers:
        """Buffers of zeros for the keys and values of `capacity` tokens."""
        shapes = [
            (1, layer.projections[1][0].shape[0] // layer.head, capacity, layer.head)
            for layer in self._layers
        ]
        keys = [self._model.lm_head.weight.new_zeros(shape) for shape in shapes]
        return keys, [torch.zeros_like(key) for key in keys]

    def __call__(self, *call: Any) -> Tensor:
        """Logits (B, n, V) of a `Call`, or (B, N, V) where its positions are None."""
        return self.packed([Call(*call)])[0]

    def packed(self, calls: Sequence[Call]) -> list[Tensor]:
        """The logits of several calls.

        All M tokens go through a layer's matrix products together, and attend call by call.
        """
        ids_M = _together([call.ids_BN.flatten() for call in calls])
        hidden_ME = self._inner.embed_tokens(ids_M)
        positions = [call.position_BN.expand_as(call.ids_BN).flatten() for call in calls]
        rotary = self._rotary(hidden_ME, _together(positions))
        biases = [call.bias(hidden_ME.dtype) for call in calls]
        for number, layer in enumerate(self._layers):
            hidden_ME = _run(layer, number, hidden_ME, rotary, calls, biases)
        parts = _normed(hidden_ME, self._norm).split([call.ids_BN.numel() for call in calls])
        read = [
            read_positions(part.view(*call.ids_BN.shape, -1), call.positions)
            for call, part in zip(calls, parts, strict=True)
        ]
        rows = [hidden_BnE.flatten(0, 1) for hidden_BnE in read]
        logits = self._model.logits_of(_together(rows)).split([len(part_RE) for part_RE in rows])
        return [
            logits_RV.unflatten(0, hidden_BnE.shape[:2])
            for logits_RV, hidden_BnE in zip(logits, read, strict=True)
        ]

    def _rotary(self, hidden_ME: Tensor, position_M: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of positions, (M, 1, R); the sines of the first half of a head have the
        negative sign of the rotation already."""
        limit = self._config.max_position_embeddings
        place = (hidden_ME.device, hidden_ME.dtype)
        if limit > LONGEST_TABLE or len(position_M) > limit:
            angles_MA = self._angles(hidden_ME, position_M)
        else:
            if self._place != place:
                position_P = torch.arange(limit, device=hidden_ME.device)
                self._table_PA = self._angles(hidden_ME, position_P)
                self._place = place
            angles_MA = F.embedding(position_M, self._table_PA)
        cos_M1R, sin_M1R = angles_MA[:, None].chunk(2, -1)
        return cos_M1R, sin_M1R

    def _angles(self, hidden_ME: Tensor, position_M: Tensor) -> Tensor:
        cos_1MR, sin_1MR = self._inner.rotary_emb(hidden_ME[None], position_M[None])
        first_Mr, second_Mr = sin_1MR[0].chunk(2, -1)
        return torch.cat([cos_1MR[0], -first_Mr, second_Mr], -1)


def _run(
    layer: Layer,
    number: int,
    hidden_ME: Tensor,
    rotary: tuple[Tensor, Tensor],
    calls: Sequence[Call],
    biases: Sequence[Tensor | None],
) -> Tensor:
    """Run one layer on the M tokens of all calls; hidden_ME is changed in place."""
    normed_ME = _normed(hidden_ME, layer.before)
    query, key, value = (
        F.linear(normed_ME, *weights).view(len(hidden_ME), -1, layer.head)
        for weights in layer.projections
    )
    if layer.norms is not None:
        query, key = (
            _normed(values, norm) for values, norm in zip((query, key), layer.norms, strict=True)
        )
    # Queries and keys are rotated together, as the angles of a position are the same for all heads.
    rotated_MHD = _rotated(torch.cat([query, key], 1), *rotary).to(value.dtype)
    queries = query.shape[1]
    attended = []
    begin = 0
    for call, bias in zip(calls, biases, strict=True):
        end = begin + call.ids_BN.numel()
        parts = (
            rotated_MHD[begin:end, :queries],
            rotated_MHD[begin:end, queries:],
            value[begin:end],
        )
        shape = (*call.ids_BN.shape, -1, layer.head)
        query_BHND, key_BHND, value_BHND = (part.view(shape).transpose(1, 2) for part in parts)
        if call.cache is not None:
            key_BHND, value_BHND = call.cache.update(
                key_BHND, value_BHND, number, query_1HND=query_BHND, read_n=call.positions
            )
        attended.append(_attended(layer, bias, query_BHND, key_BHND, value_BHND))
        begin = end
    hidden_ME += F.linear(_together(attended), *layer.out)
    normed_ME = _normed(hidden_ME, layer.after)
    if layer.dense is None:
        hidden_ME += layer.experts(normed_ME[None]).view(hidden_ME.shape)
    else:
        gate, up, down = layer.dense
        gate_MF = F.silu(F.linear(normed_ME, *gate), inplace=True)
        hidden_ME += F.linear(gate_MF.mul_(F.linear(normed_ME, *up)), *down)
    return hidden_ME


def _attended(
    layer: Layer,
    bias_B1NK: Tensor | None,
    query_BHND: Tensor,
    key_BHKD: Tensor,
    value_BHKD: Tensor,
) -> Tensor:
    """The attention output of one call, (B * N, E)."""
    if layer.groups == 1:
        attended_BHND = F.scaled_dot_product_attention(
            query_BHND, key_BHKD, value_BHKD, attn_mask=bias_B1NK, scale=layer.attention.scaling
        )
        attended_BNHD = attended_BHND.transpose(1, 2)
    else:
        attended_BNHD, _ = sdpa_attention_forward(
            layer.attention,
            query_BHND,
            key_BHKD,
            value_BHKD,
            bias_B1NK,
            scaling=layer.attention.scaling,
            is_causal=False,
        )
    return attended_BNHD.reshape(-1, query_BHND.shape[1] * layer.head)


def _together(parts: list[Tensor]) -> Tensor:
    """The parts concatenated; a single part is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _normed(values: Tensor, norm: Norm) -> Tensor:
    """RMS norm: values divided by their root mean square over the last dimension, computed in fp32,
    and scaled."""
    scale, attributes = norm
    exact = values.float()
    # Read at every call, as it may have been changed after loading, which `_look` does not see.
    epsilon = attributes["variance_epsilon"]
    root = exact.pow(2).mean(-1, keepdim=True).add_(epsilon).rsqrt_()
    return scale * root.mul(exact).to(values.dtype)


def _rotated(values_MHD: Tensor, cos_M1R: Tensor, sin_M1R: Tensor) -> Tensor:
    """Values rotated by the angles of their positions.

    A rotation combines each half of a head with the other half, one of them with the opposite sign,
    which the sines have already. If a head is longer than the angles, only its first part rotates.
    """
    width = cos_M1R.shape[-1]
    if width < values_MHD.shape[-1]:
        rotated_MHR = _rotated(values_MHD[..., :width], cos_M1R, sin_M1R)
        return torch.cat([rotated_MHR, values_MHD[..., width:]], -1)
    exchanged_MHD = values_MHD.roll(width // 2, -1)
    return (values_MHD * cos_M1R).add_(exchanged_MHD * sin_M1R)


def _known(layer: Any) -> Layer | None:
    """The weights of a layer; None if it or a part of it is of an unknown type, or was changed."""
    if not _is_of(layer, "DecoderLayer"):
        return None
    attention: Any = layer.self_attn
    mlp: Any = layer.mlp
    is_dense = _is_of(mlp, "MLP") and type(mlp.act_fn) in (nn.SiLU, SiLUActivation)
    norms = [layer.input_layernorm, layer.post_attention_layernorm]
    norms += [getattr(attention, name) for name in ("q_norm", "k_norm") if hasattr(attention, name)]
    linear: list[Any] = [getattr(attention, name, None) for name in PROJECTIONS]
    if is_dense:
        linear += [mlp.gate_proj, mlp.up_proj, mlp.down_proj]
    if not _are_known(layer, norms, linear, is_dense):
        return None
    weights = [(projection.weight, projection.bias) for projection in linear]
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


def _are_known(layer: Any, norms: list[Any], linear: list[Any], is_dense: bool) -> bool:
    """Whether all parts of a layer are of known types and unchanged."""
    is_known = (
        _is_of(layer.self_attn, "Attention")
        and (is_dense or type(layer.mlp).__name__ in SPARSE)
        and all(_is_of(norm, "RMSNorm") for norm in norms)
        and all(type(projection) is nn.Linear for projection in linear)
    )
    # Experts run as modules, so that whatever is in them runs too.
    experts = set() if is_dense else {*layer.mlp.modules()}
    return is_known and all(map(_is_untouched, set(layer.modules()) - experts))


def _shapes_of(layers: Sequence[Layer], head: Any) -> Shapes | None:
    """The shapes from which FLOP are counted; None for mixtures of experts and unknown heads."""
    if type(head) is not nn.Linear:
        return None
    weights = 0
    attention = 0
    for layer in layers:
        if layer.dense is None:
            return None
        linear = [*layer.projections, layer.out, *layer.dense]
        weights += sum(weight.numel() for weight, _ in linear)
        attention += len(layer.projections[0][0])  # the rows of the queries' matrix
    return Shapes(weights, attention, head.weight.numel())


def _is_of(module: Any, kind: str) -> bool:
    """Whether a module is of this kind ("MLP") and of a known model, in transformers' own class."""
    name = type(module).__name__.removesuffix(kind)
    return name in MODELS and type(module).__module__.startswith("transformers.models.")


def _is_untouched(module: nn.Module) -> bool:
    """Whether a call of a module runs its class's own forward, on plain parameters, without
    hooks."""
    kind = type(module)
    # A forward from another file was put into the class; a subclass of Parameter, as a quantized
    # one, may compute otherwise.
    return (
        not _is_hooked(module)
        and kind.forward.__module__ == kind.__module__
        and all(
            type(weight) is nn.Parameter
            for weight in module._parameters.values()
            if weight is not None
        )
    )


def _is_hooked(module: nn.Module, placed: Any = None) -> bool:
    """Whether a call of a module runs anything but its class's forward, or the forward that
    accelerate put in its place (`placement.placed_forward`)."""
    hooks = chain(module._forward_hooks.values(), module._forward_pre_hooks.values())
    return (
        vars(module).get("forward") is not placed
        or module._compiled_call_impl is not None
        or any(map(_is_foreign, hooks))
    )


def _is_foreign(hook: Any) -> bool:
    """Whether a hook is not one of transformers, which capture outputs, or of this package, which
    count calls."""
    return not str(getattr(hook, "__module__", "")).startswith(("transformers.", "model_wrappers."))


def _norm_of(norm: Any) -> Norm:
    return norm.weight, vars(norm)
