"""The forward in torch's functions: transformers' numbers bit for bit, or its own code; buffers;
torch.compile."""

from typing import Any

import pytest
import torch
from families import NAMES, kept_layers, random_model, tiny
from torch import nn

from model_wrappers import Backbone
from model_wrappers.backbones import plain
from model_wrappers.backbones.plain import ModelForward, PlainForward
from model_wrappers.backbones.protocol import ROOM, KeyValues, Write

DTYPES = [torch.float32, torch.bfloat16]
LENGTH, PIECE = 12, 5
ALL_HEADS = {"num_key_value_heads": 4}
# Of block models those with layers that no other family has, here at calls of any kind.
IN_BLOCKS = ["sdar_moe", "llada2_moe"]
# else two heads share keys
KINDS = [(name, {}) for name in NAMES + IN_BLOCKS] + [
    ("llada", ALL_HEADS),
    ("a2d-qwen3", ALL_HEADS),
    ("llada2_moe", {"partial_rotary_factor": 1.0}),
]


@pytest.fixture(scope="module", params=KINDS, ids=str)
def model(request: pytest.FixtureRequest) -> Any:
    name, changes = request.param
    model = random_model(name, 4, **changes).eval()
    for buffer_name, buffer in model.named_buffers():
        if buffer_name.endswith("correction_bias"):  # of routers; it begins as zeros
            buffer.copy_(torch.linspace(0.5, -0.5, len(buffer)))
    return model


def random_ids(rows: int, length: int) -> torch.Tensor:
    return torch.randint(0, 38, (rows, length), generator=torch.Generator().manual_seed(length))


def both(model: Any, *call: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of a call by transformers' layers and by the plain forward."""
    own = PlainForward(model)
    assert own.is_plain
    with torch.inference_mode():
        return model.infer(*call), own(*call)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_whole_sequences_are_equal(model: Any, dtype: torch.dtype, rows: int, causal: bool) -> None:
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()[None, None] if causal else None
    position_1N = torch.arange(LENGTH)[None]
    by_row = torch.tensor([[0, 7], [4, 11], [2, 3]])[:rows]
    for read in (None, torch.tensor([0, 4, 11]), by_row):
        theirs, ours = both(
            model.to(dtype), random_ids(rows, LENGTH), position_1N, mask, None, read
        )
        assert torch.equal(theirs, ours)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("write", ["append", "replace", "none"])
def test_pieces_beside_kept_keys_are_equal(model: Any, dtype: torch.dtype, write: Write) -> None:
    model.to(dtype)
    own, position_N = PlainForward(model), torch.arange(PIECE) + 3
    visible_NK = torch.rand(PIECE, LENGTH + (PIECE if write != "replace" else 0)) > 0.4
    visible_NK[:, 0] = True
    given = []
    with torch.inference_mode():
        for forward in (model.infer, own):
            cache = KeyValues()
            cache.begin(LENGTH)
            forward(random_ids(1, LENGTH), torch.arange(LENGTH)[None], None, cache, None)
            cache.end()
            cache.begin(PIECE, write, position_N)
            mask = visible_NK[None, None]
            logits = forward(
                random_ids(1, PIECE), position_N[None], mask, cache, torch.tensor([1, 3])
            )
            cache.end()
            given.append([logits, *(kept for pair in kept_layers(cache) for kept in pair)])
    assert all(torch.equal(theirs, ours) for theirs, ours in zip(*given, strict=True))


@pytest.mark.parametrize("name", NAMES + IN_BLOCKS)
def test_models_whose_angles_are_not_kept_are_equal(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, "LONGEST_TABLE", 8)
    position_1N = torch.arange(LENGTH)[None] + 2
    theirs, ours = both(random_model(name), random_ids(1, LENGTH), position_1N, None, None, None)
    assert torch.equal(theirs, ours)


def test_weights_are_read_where_the_model_has_them() -> None:
    backbone = tiny("llada")
    ids_1L = random_ids(1, LENGTH)
    before = backbone.logits(ids_1L).clone()
    with torch.no_grad():
        backbone.model.model.layers[1].mlp.up_proj.weight.mul_(1.5)
    after = backbone.logits(ids_1L)
    assert not torch.equal(before, after)
    assert torch.equal(
        after, both(backbone.model, ids_1L, torch.arange(LENGTH)[None], None, None, None)[0]
    )


def test_a_block_models_logits_are_fp32_whatever_its_weights_are() -> None:
    model = random_model("llada2_moe").to(torch.bfloat16)
    call = random_ids(1, LENGTH), torch.arange(LENGTH)[None], None, None, None
    theirs, ours = both(model, *call)
    assert theirs.dtype == ours.dtype == torch.float32


class Adapted(nn.Linear):
    """A projection with something beside its weights, as adapters have."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(values)


@pytest.mark.parametrize(
    "place", ["self_attn.v_proj", "mlp.up_proj", "mlp", "self_attn", "input_layernorm"]
)
def test_a_model_with_anything_unknown_in_a_layer_runs_as_transformers_has_it(place: str) -> None:
    model = random_model("llada")
    layer = model.model.layers[1]
    parent, _, name = place.rpartition(".")
    own = layer.get_submodule(place)
    own.__class__ = Adapted if isinstance(own, nn.Linear) else type("Changed", (type(own),), {})
    setattr(layer.get_submodule(parent), name, own)
    assert ModelForward(model).current() == model.infer
    assert not Backbone(tiny("llada").family, model, None, "changed").can_pack


# Buffers of keys and values
def numbers(first: int, count: int) -> torch.Tensor:
    """Keys (1, 2, count, 3) that are all different."""
    return (first + torch.arange(count * 6.0).view(count, 2, 3)).transpose(0, 1)[None]


def put(cache: KeyValues, new: torch.Tensor) -> torch.Tensor:
    """One call of one layer whose values are its keys' negatives; the keys that it gets back."""
    cache.begin(new.shape[2])
    keys, values = cache.update(new, -new, 0)
    assert torch.equal(values, -keys)
    cache.end()
    return keys.clone()


def kept(cache: KeyValues) -> torch.Tensor:
    ((keys, values),) = kept_layers(cache)
    assert torch.equal(values, -keys)
    return keys


@pytest.mark.parametrize("sizes", [(3, 2), (1, 1, 1), (10, ROOM, 200, 1000)])
def test_what_is_appended_stays_in_order_however_often_buffers_grow(sizes: tuple[int, ...]) -> None:
    cache, pieces = KeyValues(), list[torch.Tensor]()
    for number, size in enumerate(sizes):
        pieces.append(numbers(10_000 * number, size))
        assert torch.equal(put(cache, pieces[-1]), torch.cat(pieces, 2))
        assert torch.equal(kept(cache), torch.cat(pieces, 2)) and cache.get_seq_length() == sum(
            sizes[: number + 1]
        )


def test_a_buffer_with_room_is_the_same_one() -> None:
    cache = KeyValues()
    put(cache, numbers(0, 5))
    place = kept(cache).data_ptr()
    put(cache, numbers(100, ROOM))
    assert kept(cache).data_ptr() == place
    put(cache, numbers(200, 1))
    assert kept(cache).data_ptr() != place
