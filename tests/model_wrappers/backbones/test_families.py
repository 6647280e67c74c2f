"""Every family: a piece on cached keys is the whole, whatever is read where, and checkpoints load
as they are."""

import json
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import OFFICIAL_CONFIG
from families import NAMES, OFFICIAL, SHIFTED, checkpoint, kept_layers, tiny
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from model_wrappers import Backbone, load_backbone
from model_wrappers.backbones.blocks import Blocks
from model_wrappers.backbones.llada import LLaDAConfig, LLaDAForMaskedLM
from model_wrappers.backbones.protocol import Ledger
from model_wrappers.backbones.registry import FAMILIES

LENGTH = 12
MASKED = [name for name in OFFICIAL if FAMILIES[name].mask is not None]
IDS_1L = torch.randint(0, 38, (1, LENGTH), generator=torch.Generator().manual_seed(0))
EVERY_L = torch.arange(LENGTH)
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


@pytest.fixture(scope="module", params=NAMES)
def backbone(request: pytest.FixtureRequest) -> Backbone:
    return tiny(request.param, seed=3)


@pytest.fixture(scope="module", params=SHIFTED)
def shifted(request: pytest.FixtureRequest) -> Backbone:
    return tiny(request.param, seed=3)


# Logits
def test_the_first_position_sees_the_last_but_not_under_causal_attention(
    backbone: Backbone,
) -> None:
    other_1L = IDS_1L.clone()
    other_1L[0, -1] = (other_1L[0, -1] + 1) % 38
    at = torch.tensor([1])
    before, after = (backbone.logits(ids, at) for ids in (IDS_1L, other_1L))
    assert not torch.allclose(before, after, **CLOSE)
    before, after = (backbone.logits(ids, at, causal=True) for ids in (IDS_1L, other_1L))
    torch.testing.assert_close(before, after, **CLOSE)


def test_logits_at_positions_are_those_of_the_whole(backbone: Backbone) -> None:
    ids_BL = torch.cat([IDS_1L, IDS_1L.flip(1)])
    whole_BLV = backbone.logits(ids_BL)
    torch.testing.assert_close(
        backbone.logits(ids_BL, torch.tensor([4, 0])), whole_BLV[:, [4, 0]], **CLOSE
    )
    own_BnV = backbone.logits(ids_BL, torch.tensor([[4, 0], [1, 5]]))
    torch.testing.assert_close(
        own_BnV, torch.stack([whole_BLV[0, [4, 0]], whole_BLV[1, [1, 5]]]), **CLOSE
    )


def test_a_shifted_model_reads_a_token_from_the_one_before_it(shifted: Backbone) -> None:
    with torch.inference_mode():
        raw_1LV = shifted.model(input_ids=IDS_1L).logits
    # as the official samplers shift them
    expected_1LV = torch.cat([raw_1LV[:, :1], raw_1LV[:, :-1]], 1)
    torch.testing.assert_close(shifted.logits(IDS_1L), expected_1LV, **CLOSE)


# Pieces of a sequence on cached keys and values
def test_a_piece_that_is_the_whole_sequence_gives_its_logits(backbone: Backbone) -> None:
    logits_1LV, cache = backbone.extend(IDS_1L, EVERY_L, EVERY_L)
    torch.testing.assert_close(logits_1LV, backbone.logits(IDS_1L), **CLOSE)
    assert cache.get_seq_length() == LENGTH


def test_causal_pieces_put_after_each_other_give_the_logits_of_the_whole(
    backbone: Backbone,
) -> None:
    cache, pieces = None, []
    for start, end in ((0, 5), (5, 6), (6, LENGTH)):
        at_N = torch.arange(start, end)
        visible_NK = torch.arange(end)[None] <= at_N[:, None]
        read = (
            torch.arange(end - start)
            if start == 0
            else torch.arange(-backbone.reads_at, end - start)
        )
        logits_1nV, cache = backbone.extend(IDS_1L[:, start:end], at_N, read, cache, visible_NK)
        pieces.append((at_N[read], logits_1nV))
    whole_1LV = backbone.logits(IDS_1L, causal=True)
    for at_n, logits_1nV in pieces:
        torch.testing.assert_close(logits_1nV, whole_1LV[:, at_n], **CLOSE)


@pytest.mark.parametrize("write", ["none", "replace"])
def test_a_piece_in_its_own_place_gives_the_logits_of_the_whole(
    backbone: Backbone, write: str
) -> None:
    """Where nothing else changed, keys that are computed again are those that were cached."""
    _, cache = backbone.extend(IDS_1L, EVERY_L, EVERY_L)
    piece_N = torch.arange(4, LENGTH)
    if write == "none":
        cache.forget(LENGTH - 4)
    read = torch.arange(1, LENGTH - 4)
    logits_1nV, cache = backbone.extend(IDS_1L[:, piece_N], piece_N, read, cache, write=write)  # type: ignore[arg-type]
    torch.testing.assert_close(logits_1nV, backbone.logits(IDS_1L)[:, 5:], **CLOSE)
    assert cache.get_seq_length() == (4 if write == "none" else LENGTH)


def test_write_none_leaves_the_cache_as_it_is(backbone: Backbone) -> None:
    _, cache = backbone.extend(IDS_1L[:, :6], EVERY_L[:6], EVERY_L[:6])
    before = [(keys.clone(), values.clone()) for keys, values in kept_layers(cache)]
    at_N = torch.arange(6, 9)
    first, _ = backbone.extend(IDS_1L[:, 6:9], at_N, torch.tensor([1, 2]), cache, write="none")
    second, _ = backbone.extend(IDS_1L[:, 6:9], at_N, torch.tensor([1, 2]), cache, write="none")
    assert torch.equal(first, second)
    for old, new in zip(chain(*before), chain(*kept_layers(cache)), strict=True):
        assert torch.equal(old, new)


def test_write_replace_changes_the_slots_of_the_new_tokens_alone(backbone: Backbone) -> None:
    _, cache = backbone.extend(IDS_1L, EVERY_L, EVERY_L)
    before = [(keys.clone(), values.clone()) for keys, values in kept_layers(cache)]
    other_1N, slot_N = (IDS_1L[:, [7, 3]] + 1) % 38, torch.tensor([7, 3])
    at_N = torch.tensor([2, 3])  # not the slots: positions are what the angles come from
    backbone.extend(other_1N, at_N, torch.tensor([1]), cache, write="replace", slot_N=slot_N)
    kept = [slot for slot in range(LENGTH) if slot not in (3, 7)]
    for old, new in zip(chain(*before), chain(*kept_layers(cache)), strict=True):
        assert torch.equal(old[:, :, kept], new[:, :, kept])
        assert not torch.allclose(old[:, :, [3, 7]], new[:, :, [3, 7]])


@pytest.mark.parametrize(
    ("positions", "read"),
    [([4, 5, 6], [0]), ([4, 6], [1]), ([5, 4], [0]), ([0, 2, 3], [1])],
    ids=["first of the piece", "gap", "order", "gap after the first token"],
)
def test_a_shifted_model_refuses_a_position_without_another(
    shifted: Backbone, positions: list[int], read: list[int]
) -> None:
    at_N = torch.tensor(positions)
    with pytest.raises(ValueError, match="put that token before it in the same call"):
        shifted.extend(IDS_1L[:, at_N], at_N, torch.tensor(read))


def test_a_shifted_model_reads_the_first_token_of_all_at_itself_wherever_it_stands(
    shifted: Backbone,
) -> None:
    expected_1V = shifted.logits(IDS_1L)[:, :1]
    for at_N in (EVERY_L, EVERY_L.roll(3)):
        logits_1nV, _ = shifted.extend(IDS_1L[:, at_N], at_N, (at_N == 0).nonzero()[:, 0])
        torch.testing.assert_close(logits_1nV, expected_1V, **CLOSE)


# Checkpoints
@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_loads_with_the_same_logits_and_its_own_ids(name: str, tmp_path: Path) -> None:
    made = tiny(name, seed=1)
    backbone = load_backbone(checkpoint(name, tmp_path, seed=1))
    assert (backbone.family.model_type, backbone.reads_at) == (name, made.reads_at)
    assert (backbone.mask_id, backbone.eos_id, backbone.eot_id, backbone.max_length) == (
        39,
        38,
        None,
        64,
    )
    assert torch.equal(backbone.logits(IDS_1L), made.logits(IDS_1L))


def test_a_vocabulary_head_may_be_the_embedding(tmp_path: Path) -> None:
    backbone = load_backbone(checkpoint("a2d-qwen3", tmp_path, tie_word_embeddings=True))
    assert backbone.model.lm_head.weight is backbone.model.model.embed_tokens.weight


@pytest.mark.parametrize("name", ["Dream", "a2d-qwen3", "qwen2"])
def test_layers_of_sliding_windows_are_refused(name: str, tmp_path: Path) -> None:
    file = checkpoint(name, tmp_path) / "config.json"
    windows = {
        "use_sliding_window": True,
        "sliding_window": 16,
        "max_window_layers": 0,
        "layer_types": None,
    }
    file.write_text(json.dumps(json.loads(file.read_text()) | windows))
    with pytest.raises(ValueError, match="layers of sliding windows"):
        load_backbone(tmp_path)


@pytest.mark.parametrize("name", MASKED)
def test_a_mask_that_neither_config_nor_tokenizer_names_is_refused(
    name: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="must name one mask_token_id of its vocabulary"):
        load_backbone(checkpoint(name, tmp_path, mask_token_id=None))


def test_a_family_without_a_cache_has_no_extend() -> None:
    known = tiny(NAMES[0])
    alone = Backbone(replace(known.family, extends=False), known.model, None, "alone")
    assert not Ledger(alone).can_extend and Ledger(known).can_extend


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sdars_mixture_of_experts_is_qwen3s_in_blocks(dtype: str, tmp_path: Path) -> None:
    loaded = load_backbone(checkpoint("sdar_moe", tmp_path / "model"), dtype=dtype)
    assert loaded.blocks == Blocks(4)
    theirs: Any = Qwen3MoeForCausalLM(Qwen3MoeConfig(**OFFICIAL["sdar_moe"])).eval()
    for weight in theirs.parameters():  # the rotary angles stay fp32
        weight.data = weight.data.to(loaded.dtype)
    theirs.load_state_dict(loaded.model.state_dict())
    ids_1L = torch.arange(12)[None] * 3
    number_L = torch.arange(12) // 4
    seen_LL = number_L <= number_L[:, None]
    expected_1LV = theirs(input_ids=ids_1L, attention_mask=seen_LL[None, None]).logits
    logits_1LV, _ = loaded.extend(ids_1L, torch.arange(12), torch.arange(12), visible_NK=seen_LL)
    assert torch.equal(logits_1LV, expected_1LV)


def test_illada_is_a_llada_with_grouped_keys_tied_embeddings_and_a_mask_of_its_own() -> None:
    config: dict[str, Any] = OFFICIAL_CONFIG | {
        "vocab_size": 155136,
        "embedding_size": 155136,
        "n_kv_heads": 2,
    }
    del config["mask_token_id"]  # its card and README name it
    read: Any = LLaDAConfig.from_dict(config | {"weight_tying": True})
    assert (read.mask_token_id, read.num_key_value_heads, read.tie_word_embeddings) == (5, 2, True)
    with torch.device("meta"):
        model = LLaDAForMaskedLM(read)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
