"""Checkpoints of the right type that lack a tensor or hold a misshapen one, and types that are not known: one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import changed_weights, official_checkpoint
from families import NAMES, checkpoint

from model_wrappers import load_backbone
from model_wrappers.backbones.registry import FAMILIES

Weights = dict[str, torch.Tensor]


def refusal(folder: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """The message; nothing else is printed."""
    capfd.readouterr()
    with pytest.raises(ValueError, match="cannot load model") as refused:
        load_backbone(folder)
    printed = capfd.readouterr()
    assert "REPORT" not in printed.out + printed.err
    message = str(refused.value)
    assert "\n" not in message
    return message


def matching(weights: Weights, part: str) -> str:
    return next(name for name in sorted(weights) if part in name)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_tensor_is_named(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    part = "1.attn_norm" if name == "llada" else "1.input_layernorm"
    folder = changed_weights(checkpoint(name, tmp_path), lambda weights: weights.pop(matching(weights, part)))
    assert "no weights for model.layers.1.input_layernorm.weight" in refusal(folder, capfd)


@pytest.mark.parametrize("name", NAMES)
def test_a_misshapen_tensor_is_named_with_both_shapes(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def cut(weights: Weights) -> None:
        key = matching(weights, "0.q_proj" if name == "llada" else "0.self_attn.q_proj.weight")
        weights[key] = weights[key][:16].clone()

    message = refusal(changed_weights(checkpoint(name, tmp_path), cut), capfd)
    whole = "64x32" if name == "a2d-qwen3" else "32x32"
    assert f"model.layers.0.self_attn.q_proj.weight (16x32, not {whole})" in message


def test_many_missing_tensors_are_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = changed_weights(
        checkpoint("Dream", tmp_path), lambda w: [w.pop(key) for key in list(w) if "layers.1" in key]
    )
    assert "and 7 more" in refusal(folder, capfd)


@pytest.mark.parametrize("part", ["1.mlp.experts.3.up_proj", "0.mlp.experts.3.up_proj", "0.mlp.experts.5.down_proj"])
def test_a_missing_expert_is_refused_with_what_it_belongs_to(
    part: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = checkpoint("llada_moe", tmp_path, moe_layer_freq=[1, 1])
    message = refusal(changed_weights(folder, lambda w: w.pop(matching(w, part))), capfd)
    merged = "down_proj" if "down_proj" in part else "gate_up_proj"
    assert f"model.layers.{part[0]}.mlp.experts.{merged}" in message


def test_a_misshapen_expert_is_refused_with_what_it_belongs_to(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def cut(weights: Weights) -> None:
        key = matching(weights, "experts.3.up_proj")
        weights[key] = weights[key][:8].clone()

    message = refusal(changed_weights(checkpoint("llada_moe", tmp_path), cut), capfd)
    assert "model.layers.0.mlp.experts.gate_up_proj" in message


def test_an_unknown_model_type_is_refused_with_the_known_ones(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    official_checkpoint(tmp_path, model_type="parrot")
    message = refusal(tmp_path, capfd)
    assert "unknown model_type 'parrot'" in message and "--trust-remote-code" in message
    assert all(name in message for name in FAMILIES)


def test_a_mixture_of_experts_that_calls_itself_llada_is_told_by_its_architecture(tmp_path: Path) -> None:
    config = json.loads((checkpoint("llada_moe", tmp_path) / "config.json").read_text())
    assert config["model_type"] == "llada"
    assert load_backbone(tmp_path).family.model_type == "llada_moe"


@pytest.mark.parametrize("reads_at", [1, "-1", -2])
def test_a_place_to_read_that_is_none_is_refused(reads_at: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be 0"):
        load_backbone(tmp_path, reads_at=reads_at)


def test_where_logits_are_read_can_be_said(tmp_path: Path) -> None:
    """dLLM can train its models with a shift; their config does not say so."""
    folder = checkpoint("a2d-qwen3", tmp_path)
    ids_1L = torch.tensor([[5, 1, 39, 7, 39]])
    plain, shifted = load_backbone(folder), load_backbone(folder, reads_at=-1)
    assert torch.allclose(shifted.logits(ids_1L)[:, 1:], plain.logits(ids_1L)[:, :-1], atol=1e-5)
