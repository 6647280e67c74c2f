"""Models that would load and decode nonsense are refused in one line, with what is wrong with them."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import FixedLogits, changed_weights, official_checkpoint
from families import NAMES, checkpoint
from safetensors.torch import load_file

from model_wrappers import decode, load_backbone
from model_wrappers.backbones.registry import FAMILIES, NANO, SHIPPED

Weights = dict[str, torch.Tensor]
MATRIX = "model.transformer.blocks.1.q_proj.weight"
RENAMED = "model.layers.1.self_attn.q_proj.weight"


def changed_config(folder: Path, **fields: Any) -> Path:
    """A checkpoint with another config; None takes a field away."""
    file = official_checkpoint(folder) / "config.json"
    config = {**json.loads(file.read_text()), **fields}
    file.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))
    return folder


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda weights: weights[MATRIX].view(-1)[3].fill_(torch.nan), "q_proj.weight are not finite"),
        (lambda weights: weights[MATRIX].view(-1)[3].fill_(torch.inf), "q_proj.weight are not finite"),
        (lambda weights: weights[MATRIX].zero_(), "q_proj.weight are all zero"),
        (lambda weights: weights.update(extra=torch.ones(2)), "no place for 1 of its weights, such as extra"),
        (lambda weights: weights.update({RENAMED: weights[MATRIX] + 1}), r"official names, model\.transformer"),
    ],
    ids=["NaN", "inf", "zero", "a weight too many", "a weight twice"],
)
def test_weights_that_make_no_model_are_refused(tmp_path: Path, change: Callable[[Weights], Any], says: str) -> None:
    with pytest.raises(ValueError, match=rf"cannot load model .*{says}"):
        load_backbone(changed_weights(official_checkpoint(tmp_path), change))


def test_integers_among_weights_are_refused(tmp_path: Path) -> None:
    folder = changed_weights(
        official_checkpoint(tmp_path), lambda weights: weights.update({MATRIX: weights[MATRIX].to(torch.int8)})
    )
    with pytest.raises(ValueError, match=rf"the tensor {MATRIX} is of type I8"):
        load_backbone(folder)


def test_a_token_that_loading_gives_another_id_is_refused(tmp_path: Path) -> None:
    shutil.copytree(NANO, tmp_path / "model")
    file = tmp_path / "model" / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["added_tokens"].append(tokenizer["added_tokens"][-1] | {"id": 800, "content": "<|new|>"})
    file.write_text(json.dumps(tokenizer))
    with pytest.raises(ValueError, match=r"has <\|new\|> as 800, and reads \d+"):
        load_backbone(tmp_path / "model")


@pytest.mark.parametrize("field", ["partial_rotary_factor", "rope_parameters"])
def test_angles_of_a_part_of_each_head_are_refused_where_all_of_it_is_turned(field: str, tmp_path: Path) -> None:
    part = {"partial_rotary_factor": 0.5}
    with pytest.raises(ValueError, match=f"does not compute: {field}="):
        load_backbone(changed_config(tmp_path, **(part if field in part else {field: part})))


def test_weights_of_an_adapter_without_its_config_are_refused(tmp_path: Path) -> None:
    (official_checkpoint(tmp_path) / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match=r"weights of an adapter, adapter_model\.safetensors, and no adapter_config"):
        load_backbone(tmp_path)


@pytest.mark.parametrize("name", ["llada", "Dream", "a2d-qwen3", "llada2_moe"])
@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_scaling": {"type": "yarn", "factor": 4.0}},
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
        {"rope_scaling_factor": 4.0},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "original_max_position_embeddings": 64}},
        {"rope_theta": 500000.0, "rope_parameters": {"rope_theta": 10000.0}},
        {"sliding_window": 16, "use_sliding_window": True},
        {"final_logit_softcapping": 30.0},
        {"logit_scale": 0.25},
    ],
)
def test_attention_that_is_not_computed_is_refused(name: str, scaling: dict[str, Any], tmp_path: Path) -> None:
    file = checkpoint(name, tmp_path) / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | scaling))
    with pytest.raises(ValueError, match=f"asks for what this code does not compute: {next(iter(scaling))}="):
        load_backbone(tmp_path)


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ({"eos_token_id": 5}, "has eos_token_id 5, and its tokenizer ends texts with 1: one of them is wrong"),
        ({"tie_word_embeddings": True}, "ties the head to the embedding .*, and its weights have another head"),
    ],
)
def test_a_config_that_contradicts_tokenizer_or_weights_is_refused(
    tmp_path: Path, field: dict[str, Any], says: str
) -> None:
    for file in SHIPPED["nano"].iterdir():
        if file.is_file():
            (tmp_path / file.name).symlink_to(file)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(config | field))
    with pytest.raises(ValueError, match=says):
        load_backbone(tmp_path)


def test_a_folder_that_may_be_two_models_is_refused(tmp_path: Path) -> None:
    (official_checkpoint(tmp_path) / "pytorch_model.bin").write_text("{}")
    with pytest.raises(ValueError, match=r"holds 2 sets of weights, model.safetensors and pytorch_model.bin"):
        load_backbone(tmp_path)


def test_a_block_model_without_the_length_of_its_blocks_is_refused(tmp_path: Path) -> None:
    shutil.copytree(SHIPPED["nano-block"], tmp_path / "block")
    file = tmp_path / "block" / "config.json"
    config = json.loads(file.read_text())
    del config["block_size"]
    for without in (config, config | {"block_size": None}):
        file.write_text(json.dumps(without))
        with pytest.raises(ValueError, match="a block_origin and no block_size"):
            load_backbone(tmp_path / "block")
    with pytest.raises(ValueError, match="no canvas_length"):
        FAMILIES["diffusion_gemma"].blocks_of({}, "google/diffusiongemma-26B-A4B-it")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"n_layers": 1}, "no place for 9 of its weights"),
        ({"mask_token_id": 40}, "mask_token_id of its vocabulary, 0 to 39, not 40"),
        ({"mask_token_id": -1}, "mask_token_id of its vocabulary"),
        ({"mask_token_id": None}, "mask_token_id"),
        ({"eos_token_id": 40}, "eos_token_id of its vocabulary, 0 to 39, not 40"),
        ({"eos_token_id": [1, 2]}, "eos_token_id"),
        ({"vocab_size": None}, "names no sizes"),
        ({"d_model": None}, "names no sizes"),
        ({"d_model": 0}, "d_model must be at least 1, not 0"),
        ({"n_heads": -1}, "n_heads must be at least 1, not -1"),
        ({"d_model": 192_000}, "no weight has the config's hidden size of 192000"),
        ({"mask_token_id": 38, "eos_token_id": 38}, "the same id for mask and EOS, 38"),
        ({"is_causal": True}, "attends in both directions"),
        ({"quantization_config": {"quant_method": "x"}}, "quantized weights, which are not supported"),
        ({"dtype": "float99"}, "float99"),
        # of another architecture
        ({"model_type": "llama"}, "model_type"),
        ({"block_type": "sequential"}, "block_type"),
        ({"activation_type": "swiglu"}, "activation_type"),
        ({"layer_norm_type": "low_precision"}, "layer_norm_type"),
        ({"alibi": True}, "alibi"),
        ({"rope": False}, "rope"),
        ({"include_bias": True}, "include_bias"),
        ({"scale_logits": True}, "scale_logits"),
        ({"embedding_size": 64}, "embedding_size"),
    ],
)
def test_configs_that_do_not_fit_are_refused(tmp_path: Path, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        load_backbone(changed_config(tmp_path, **fields))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("config.json", text) for text in ("{}", "[]", "[1]", "null", "5", '"text"', "{", '{"model_type": "llada"}')),
        ("model.safetensors", "no safetensors at all"),
        ("model.safetensors.index.json", "{}"),
        ("model.safetensors.index.json", '{"metadata": {}, "weight_map": {}}'),
        ("model.safetensors.index.json", '{"weight_map": {"a": "../../passwd"}}'),
        ("pytorch_model.bin", "\x80\x04K\x01."),
    ],
)
def test_a_file_that_is_none_of_a_model_is_refused(tmp_path: Path, name: str, content: str) -> None:
    official_checkpoint(tmp_path)
    if name != "config.json":
        (tmp_path / "model.safetensors").unlink()
    (tmp_path / name).write_text(content, encoding="latin-1")
    with pytest.raises(ValueError, match="cannot load"):
        load_backbone(tmp_path)


@pytest.mark.parametrize("name", ["doesnotexist/x/y", "./nowhere", "/nowhere/at/all"])
def test_a_folder_that_there_is_not_is_named(name: str) -> None:
    with pytest.raises(ValueError, match="there is no such folder"):
        load_backbone(name)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"pad_token_id": 5000}, "Padding_idx"),
        ({"vocab_size": "768"}, "Validation error for field 'vocab_size'.*expected int"),
        ({"hidden_act": "nope"}, "KeyError 'nope'"),
    ],
)
def test_why_a_config_of_transformers_does_not_fit_is_said(tmp_path: Path, fields: dict[str, Any], says: str) -> None:
    shutil.copytree(NANO, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    with pytest.raises(ValueError, match=f"cannot load model .*{says}"):
        load_backbone(tmp_path)


def test_an_index_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = official_checkpoint(tmp_path / "model")
    (folder / "model.safetensors").rename(tmp_path / "out.safetensors")
    names = dict.fromkeys(load_file(tmp_path / "out.safetensors"), "../out.safetensors")
    index = {"metadata": {}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"names files outside of the folder: \.\./out.safetensors"):
        load_backbone(folder)


@pytest.mark.parametrize("content", ["{}", "[]", "{", '{"added_tokens": [], "model": 5}'])
def test_a_tokenizer_that_is_none_is_refused(tmp_path: Path, official_with_tokenizer: Path, content: str) -> None:
    folder = shutil.copytree(official_with_tokenizer, tmp_path / "model")
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(ValueError, match="cannot load the tokenizer"):
        load_backbone(folder)


def test_a_tokenizer_of_a_larger_vocabulary_is_refused(tmp_path: Path, official_with_tokenizer: Path) -> None:
    official_checkpoint(tmp_path)  # 40 tokens
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((official_with_tokenizer / name).read_bytes())
    with pytest.raises(ValueError, match="do not belong together"):
        load_backbone(tmp_path)


@pytest.mark.parametrize("method", ["llada", "ssd", "dcd", "entropy", "fef"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_logits_that_are_not_finite_are_refused(method: str, value: float) -> None:
    logits_LV = torch.zeros(8, 6)
    logits_LV[6, 2] = value
    with pytest.raises(ValueError, match="logits are not finite"):
        decode(FixedLogits(logits_LV), torch.tensor([1, 2]), method=method, gen_length=6)


def test_a_probability_of_zero_is_no_damage() -> None:
    logits_LV = torch.zeros(8, 6)
    logits_LV[:, 2] = -torch.inf
    assert 2 not in decode(FixedLogits(logits_LV), torch.tensor([1, 2]), method="llada", gen_length=6).tokens


def test_logits_that_are_not_finite_are_refused_when_sampling_fails_on_them() -> None:
    logits_LV = torch.full((8, 6), torch.nan)
    with pytest.raises(ValueError, match="logits are not finite"):
        decode(FixedLogits(logits_LV), torch.tensor([1, 2]), method="fef", gen_length=6, temperature=1.0)


# Tensors that are missing or misshapen, and types that are not known
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
def test_a_misshapen_tensor_is_named_with_shapes(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def cut(weights: Weights) -> None:
        key = matching(weights, "0.q_proj" if name == "llada" else "0.self_attn.q_proj.weight")
        weights[key] = weights[key][:16].clone()

    message = refusal(changed_weights(checkpoint(name, tmp_path), cut), capfd)
    whole = "64x32" if name == "a2d-qwen3" else "32x32"
    assert f"model.layers.0.self_attn.q_proj.weight (16x32, not {whole})" in message


@pytest.mark.parametrize("part", ["1.mlp.experts.3.up_proj", "0.mlp.experts.3.up_proj", "0.mlp.experts.5.down_proj"])
def test_a_missing_expert_is_refused_by_its_name(part: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = checkpoint("llada_moe", tmp_path, moe_layer_freq=[1, 1])
    message = refusal(changed_weights(folder, lambda w: w.pop(matching(w, part))), capfd)
    merged = "down_proj" if "down_proj" in part else "gate_up_proj"
    assert f"model.layers.{part[0]}.mlp.experts.{merged}" in message


def test_a_missing_expert_has_its_name_where_logging_is_disabled(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = checkpoint("llada_moe", tmp_path, moe_layer_freq=[1, 1])
    changed_weights(folder, lambda w: w.pop(matching(w, "1.mlp.experts.3.up_proj")))
    logging.disable(logging.WARNING)  # as the commands do
    try:
        message = refusal(folder, capfd)
        assert logging.root.manager.disable == logging.WARNING
    finally:
        logging.disable(logging.NOTSET)
    assert "model.layers.1.mlp.experts.gate_up_proj" in message


def test_an_unknown_model_type_is_refused_with_the_known(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    official_checkpoint(tmp_path, model_type="parrot")
    message = refusal(tmp_path, capfd)
    assert "unknown model_type 'parrot'" in message and "--trust-remote-code" in message
    assert all(name in message for name in FAMILIES)


@pytest.mark.parametrize("reads_at", [1, "-1", -2])
def test_a_place_to_read_that_is_none_is_refused(reads_at: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be 0"):
        load_backbone(tmp_path, reads_at=reads_at)
