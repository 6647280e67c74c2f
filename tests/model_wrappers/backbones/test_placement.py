"""Models on several devices: here on the CPU and on a disk, with the tokens and the counts of a
model on one."""

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.hooks import attach_align_device_hook_on_blocks
from families import NAMES, checkpoint, random_model, tiny

from model_wrappers import Backbone, decode, load_backbone
from model_wrappers.backbones.placement import input_device, main_device, map_of, weights_of
from model_wrappers.text_model import TextModel

SPLIT = {
    "model.embed_tokens": "disk",
    "model.layers.0": "cpu",
    "model.layers.1": "disk",
    "model.norm": "cpu",
    "model.rotary_emb": "cpu",
    "lm_head": "disk",
}
IN_BLOCKS = ("sdar_moe", "llada2_moe")
IDS_1L = torch.tensor([[3, 4, 7, 1, 5, 2]])


def split(name: str, folder: Path, **changes: Any) -> Backbone:
    """The tiny checkpoint of a family, a part of it on the disk."""
    saved = checkpoint(name, folder / "model", **changes)
    return load_backbone(saved, device_map=SPLIT, offload_folder=folder / "offloaded")


@pytest.mark.parametrize("name", [*NAMES, *IN_BLOCKS])
def test_a_split_model_decodes_as_a_whole_one(name: str, tmp_path: Path) -> None:
    whole = tiny(name)
    parts = split(name, tmp_path)
    methods = ("block", "fef") if name in IN_BLOCKS else ("threshold", "wino")
    for method in methods:
        wanted = decode(whole, [3, 4, 5], method, gen_length=8)
        out = decode(parts, [3, 4, 5], method, gen_length=8)
        assert torch.equal(out.tokens, wanted.tokens)
        assert out.trace.forwards == wanted.trace.forwards
        assert out.trace.changed_forwards == 0


def test_a_split_model_takes_tokens_and_gives_logits_on_its_main_device(tmp_path: Path) -> None:
    parts = split("llada", tmp_path)
    assert parts.model.device.type == "meta"  # of its first weight, which is on the disk
    assert parts.device == torch.device("cpu") == parts.logits(IDS_1L).device


def test_a_split_model_makes_one_call_at_a_time(tmp_path: Path) -> None:
    assert not split("llada", tmp_path).can_pack


def test_a_split_model_that_is_changed_computes_so_and_counts_it(tmp_path: Path) -> None:
    parts = split("llada", tmp_path)
    before_1LV = parts.logits(IDS_1L)
    forward = parts.model.forward

    def scaled(input_ids: torch.Tensor, **options: Any) -> Any:
        output = forward(input_ids, **options)
        output.logits = -output.logits
        return output

    parts.model.forward = scaled
    torch.testing.assert_close(parts.logits(IDS_1L), -before_1LV)
    assert parts.is_changed


def test_weights_on_a_disk_are_looked_at(tmp_path: Path) -> None:
    wanted = dict(tiny("llada").model.named_parameters())
    seen = {
        name: weight.detach().clone() for name, weight in weights_of(split("llada", tmp_path).model)
    }
    assert seen.keys() == wanted.keys()
    assert all(torch.equal(seen[name], weight) for name, weight in wanted.items())


def test_the_map_is_known_where_there_are_several_devices(tmp_path: Path) -> None:
    assert map_of(split("llada", tmp_path).model) == SPLIT
    assert map_of(tiny("llada").model) is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there all of it is on the GPU")
def test_a_model_that_one_device_has_room_for_is_as_without_a_map(tmp_path: Path) -> None:
    backbone = load_backbone(checkpoint("llada", tmp_path), device_map="auto")
    assert map_of(backbone.model) is None
    assert input_device(backbone.model) == torch.device("cpu")
    assert backbone.can_pack
    assert torch.equal(backbone.logits(IDS_1L), tiny("llada").logits(IDS_1L))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize(("first", "last"), [("cpu", "cuda:0"), ("cuda:0", "cpu")])
def test_layers_that_compute_on_two_devices_decode_as_on_one(first: str, last: str) -> None:
    whole = tiny("llada")
    model = random_model("llada").eval()
    places = dict.fromkeys(SPLIT, last) | {"model.embed_tokens": first, "model.layers.0": first}
    attach_align_device_hook_on_blocks(
        model,
        {"": first, **places},
        dict.fromkeys(places, False),
        skip_keys=model._skip_keys_device_placement,
    )
    parts = Backbone(whole.family, model, None, "parts")
    for cache in ("none", "dual"):
        way = {"method": "threshold", "cache": cache, "gen_length": 8, "block_length": 4}
        wanted = decode(whole, [3, 4, 5], **way)
        out = decode(parts, [3, 4, 5], **way)
        assert torch.equal(out.tokens.cpu(), wanted.tokens)
        assert out.trace.changed_forwards == 0


def test_a_models_main_device_is_a_gpu_where_its_map_names_one() -> None:
    assert main_device({"model": 0, "lm_head": "cpu"}).type == "cuda"
    assert main_device(SPLIT).type == "cpu"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"device_map": "auto", "device": "cuda"}, "leave device=cuda out"),
        ({"device_map": "auto", "cuda_graphs": True}, "CUDA graphs are of one device"),
        ({"device_map": "cpu"}, "device_map='cpu' must be 'auto', or a table"),
    ],
)
def test_what_does_not_go_with_a_map_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        load_backbone("nano", **options)


def test_a_text_model_takes_a_map(tmp_path: Path) -> None:
    saved = checkpoint("llada", tmp_path / "model")
    parts = {**SPLIT, "model.embed_tokens": "cpu", "model.layers.1": "cpu", "lm_head": "cpu"}
    model = TextModel(str(saved), "llada", gen_length=4, device_map=parts)
    assert model.backbone.device == torch.device("cpu")
    with pytest.raises(ValueError, match="device_map: the model is loaded already"):
        TextModel(model.backbone, "llada", gen_length=4, device_map="auto")
