"""LoRA adapters, as peft saves them for the official code's modules: merged into their base, or
refused."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import changed_weights, official_checkpoint
from peft import LoraConfig, PeftModel
from peft.tuners.lora import Linear
from safetensors.torch import load_file
from torch import nn

from harness.runs.describe import _weights
from harness.suites.published import blocks_of
from model_wrappers import load_backbone
from model_wrappers.backbones.registry import SHIPPED

LORA = {
    "r": 4,
    "lora_alpha": 16,
    "target_modules": ["q_proj", "ff_out"],
    "init_lora_weights": False,
}


def layers(weights: dict[str, torch.Tensor]) -> nn.Module:
    """The matrices of an official checkpoint in modules of their names, as its own code has
    them."""
    root = nn.Module()
    for name, weight in weights.items():
        at = root
        *path, last = name.removesuffix(".weight").split(".")
        for part in path:
            at.add_module(part, at._modules.get(part) or nn.Module())
            at = at.get_submodule(part)
        if weight.dim() == 2:
            at.add_module(last, nn.Linear(*reversed(weight.shape), bias=False))
            at.get_submodule(last).weight.data.copy_(weight)  # type: ignore[union-attr,operator]
    return root


def adapter(
    folder: Path, base: Path | str, weights: dict[str, torch.Tensor], **config: Any
) -> PeftModel:
    """A random adapter in a folder, and peft's model with it."""
    torch.manual_seed(0)
    model = PeftModel(layers(weights), LoraConfig(**{**LORA, **config}))
    model.save_pretrained(folder)
    file = folder / "adapter_config.json"
    file.write_text(
        json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": str(base)})
    )
    return model


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return official_checkpoint(tmp_path / "base")


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize(
    "config", [{}, {"use_rslora": True, "rank_pattern": {"blocks.0.q_proj": 2}}]
)
def test_an_adapter_has_the_logits_of_the_merged_weights(
    config: dict[str, Any], base: Path, tmp_path: Path
) -> None:
    modules = adapter(
        tmp_path / "adapter", base, weights_of(base), **config
    ).base_model.model.named_modules()
    deltas = {
        f"{name}.weight": each.get_delta_weight("default")
        for name, each in modules
        if isinstance(each, Linear)
    }
    assert len(deltas) == 5  # of two blocks, and the head, whose name ends in ff_out too
    merged = shutil.copytree(base, tmp_path / "merged")
    changed_weights(
        merged,
        lambda weights: weights.update({name: weights[name] + deltas[name] for name in deltas}),
    )
    ids_1L = torch.arange(12)[None]
    expected, plain, found = (
        load_backbone(each).logits(ids_1L) for each in (merged, base, tmp_path / "adapter")
    )
    assert torch.equal(found, expected) and not torch.allclose(found, plain)


def test_an_adapter_is_merged_into_a_model_on_several_devices(base: Path, tmp_path: Path) -> None:
    adapter(tmp_path / "adapter", base, weights_of(base))
    modules = ("model.embed_tokens", "model.layers", "model.norm", "model.rotary_emb", "lm_head")
    device_map = dict.fromkeys(modules, "cpu") | {"model.layers": "disk"}
    split = load_backbone(
        tmp_path / "adapter", device_map=device_map, offload_folder=tmp_path / "offloaded"
    )
    ids_1L = torch.arange(12)[None]
    assert torch.equal(split.logits(ids_1L), load_backbone(tmp_path / "adapter").logits(ids_1L))


def test_a_record_names_base_and_adapter(base: Path, tmp_path: Path) -> None:
    adapter(tmp_path / "adapter", base, weights_of(base))
    record = _weights(load_backbone(tmp_path / "adapter"))
    assert (
        "model.safetensors" in record["sha256"] and "adapter_model.safetensors" in record["adapter"]
    )
    assert "adapter" not in _weights(load_backbone(base))


def test_an_adapter_of_a_block_model_decodes_in_its_blocks(tmp_path: Path) -> None:
    block = SHIPPED["nano-block"]
    adapter(tmp_path / "mine", block, weights_of(block), target_modules=["q_proj"])
    expected = load_backbone("nano-block").blocks
    assert (
        load_backbone(tmp_path / "mine").blocks == expected
        and blocks_of(str(tmp_path / "mine")) == expected
    )


@pytest.mark.parametrize("changes", [{"d_model": 64}, {"n_layers": 1}, {"n_layers": 3}])
def test_an_adapter_of_another_base_is_refused(
    changes: dict[str, int], base: Path, tmp_path: Path
) -> None:
    other = official_checkpoint(tmp_path / "other", **changes)
    adapter(tmp_path / "adapter", base, weights_of(other))
    with pytest.raises(ValueError, match="its adapter does not fit its base"):
        load_backbone(tmp_path / "adapter")


def test_without_peft_an_adapter_is_refused(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter(tmp_path / "adapter", base, weights_of(base))
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ValueError, match=r"holds an adapter .*pip install 'peft"):
        load_backbone(tmp_path / "adapter")
