"""Folders that are no model are refused in one line, with what is wrong; what people's folders have
beside is not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import FixedLogits, changed_weights, official_checkpoint
from families import checkpoint

from model_wrappers import decode, load_backbone
from model_wrappers.backbones.registry import FAMILIES, NANO

Weights = dict[str, torch.Tensor]
MATRIX = "model.transformer.blocks.1.q_proj.weight"
IDS_1L = torch.arange(12)[None]


def changed_config(folder: Path, **fields: Any) -> Path:
    """A checkpoint with another config; None takes a field away."""
    file = official_checkpoint(folder) / "config.json"
    config = {**json.loads(file.read_text()), **fields}
    file.write_text(
        json.dumps({name: value for name, value in config.items() if value is not None})
    )
    return folder


def nano_with(folder: Path, **fields: Any) -> Path:
    """nano with other fields in its config."""
    shutil.copytree(
        NANO,
        folder,
        dirs_exist_ok=True,
        ignore=lambda _, names: [n for n in names if (NANO / n).is_dir()],
    )
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    return folder


# What people's folders have
@pytest.mark.parametrize(
    "extra",
    [
        {"v_head.summary.weight": torch.ones(1, 32)},
        {"model.transformer.blocks.1.q_proj.bias": torch.zeros(32)},
        {"step": torch.tensor(7)},
        {"model.transformer.blocks.0.calls": torch.tensor([7])},
    ],
    ids=str,
)
def test_tensors_that_the_model_has_no_place_for_are_named_in_a_warning(
    extra: Weights, tmp_path: Path
) -> None:
    plain = load_backbone(official_checkpoint(tmp_path / "plain")).logits(IDS_1L)
    folder = changed_weights(
        official_checkpoint(tmp_path / "more"), lambda weights: weights.update(extra)
    )
    with pytest.warns(UserWarning, match="weights without a place in the model are left out: "):
        assert torch.equal(load_backbone(folder).logits(IDS_1L), plain)


def test_an_ablated_matrix_is_one(tmp_path: Path) -> None:
    load_backbone(
        changed_weights(official_checkpoint(tmp_path), lambda weights: weights[MATRIX].zero_())
    )


def test_of_several_sets_of_weights_the_one_that_transformers_takes_is_read(tmp_path: Path) -> None:
    folder = official_checkpoint(tmp_path, sharded=True)
    shards = load_backbone(folder).logits(IDS_1L)
    (folder / "pytorch_model.bin").write_text("{}")
    assert torch.equal(load_backbone(folder).logits(IDS_1L), shards)
    official_checkpoint(folder, seed=1)  # merged, beside the shards
    alone = load_backbone(official_checkpoint(tmp_path / "alone", seed=1)).logits(IDS_1L)
    assert torch.equal(load_backbone(folder).logits(IDS_1L), alone)


@pytest.mark.parametrize(
    "fields",
    [
        {"eos_token_id": 5},  # the tokenizer's is another
        {"quantization_config": {}},
        {"quantization_config": None},
        {"rope_scaling": {"type": "linear", "factor": 1.0}},
        {"rope_scaling": None},
        {"torch_dtype": "auto"},
        {"is_causal": False, "use_cache": True, "my_notes": "fine-tuned"},
    ],
    ids=str,
)
def test_a_config_that_asks_for_nothing_else_is_read(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    backbone = load_backbone(nano_with(tmp_path, **fields))
    assert torch.equal(backbone.logits(IDS_1L), load_backbone("nano").logits(IDS_1L))
    assert backbone.eos_id == fields.get("eos_token_id", 1)


@pytest.mark.parametrize(
    ("ends", "eos", "eot"), [([5], 5, None), ([5, 7], 5, 7), ([38, 1, 2], 38, 1)]
)
def test_of_several_eos_ids_the_first_fills_and_another_ends(
    ends: list[int], eos: int, eot: int, tmp_path: Path
) -> None:
    backbone = load_backbone(changed_config(tmp_path, eos_token_id=ends))
    assert (backbone.eos_id, backbone.eot_id) == (eos, eot)


def test_an_embedding_that_is_padded_is_read_with_its_padding(tmp_path: Path) -> None:
    folder = official_checkpoint(tmp_path / "padded", vocab_size=64, embedding_size=64)
    expected = load_backbone(folder).logits(IDS_1L)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 40}))
    assert torch.equal(load_backbone(folder).logits(IDS_1L), expected)


@pytest.mark.parametrize("dtype", ["bf16", "torch.bfloat16", "bfloat16", torch.bfloat16, "auto"])
def test_a_dtype_has_several_names(dtype: Any, tmp_path: Path) -> None:
    folder = changed_config(tmp_path, torch_dtype="bfloat16")
    assert load_backbone(folder, dtype=dtype).dtype == torch.bfloat16


def test_a_folder_may_be_below_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    official_checkpoint(tmp_path / "mine")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_backbone("~/mine").vocab_size == 40


# What is no model
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda weights: weights[MATRIX].view(-1)[3].fill_(torch.nan),
            "q_proj.weight are not finite",
        ),
        (
            lambda weights: weights.update({MATRIX: weights[MATRIX].to(torch.int8)}),
            "the tensor .* is of type I8",
        ),
        (
            lambda weights: weights.update({MATRIX.replace("weight", "bias"): torch.ones(32)}),
            "its layers have weights that this code does not compute, such as .*q_proj.bias",
        ),
        (
            lambda weights: weights.update(
                {"model.transformer.blocks.0.q_norm.weight": torch.ones(32)}
            ),
            "its layers have weights that this code does not compute",
        ),
    ],
    ids=["NaN", "int8", "a bias", "a norm"],
)
def test_weights_that_make_no_model_are_refused(
    tmp_path: Path, change: Callable[[Weights], Any], says: str
) -> None:
    with pytest.raises(ValueError, match=rf"cannot load model .*{says}"):
        load_backbone(changed_weights(official_checkpoint(tmp_path), change))


@pytest.mark.parametrize("name", ["llada", "Dream"])
@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_scaling": {"type": "yarn", "factor": 4.0}},
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
    ],
)
def test_angles_that_are_not_computed_are_refused(
    name: str, scaling: dict[str, Any], tmp_path: Path
) -> None:
    file = checkpoint(name, tmp_path) / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | scaling))
    with pytest.raises(
        ValueError, match=f"asks for what this code does not compute: {next(iter(scaling))}="
    ):
        load_backbone(tmp_path)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"mask_token_id": 40}, "mask_token_id of its vocabulary, 0 to 39, not 40"),
        ({"eos_token_id": 40}, "eos_token_id of its vocabulary, 0 to 39, not 40"),
        ({"d_model": None}, "names no sizes"),
        ({"quantization_config": {"quant_method": "x"}}, "its weights are quantized"),
    ],
)
def test_configs_that_do_not_fit_are_refused(
    tmp_path: Path, fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        load_backbone(changed_config(tmp_path, **fields))


@pytest.mark.parametrize(
    ("name", "content"),
    [("config.json", "{}"), ("config.json", "{"), ("model.safetensors", "no safetensors at all")],
)
def test_a_file_that_is_none_of_a_model_is_refused(tmp_path: Path, name: str, content: str) -> None:
    official_checkpoint(tmp_path)
    if name != "config.json":
        (tmp_path / "model.safetensors").unlink()
    (tmp_path / name).write_text(content, encoding="latin-1")
    with pytest.raises(ValueError, match="cannot load"):
        load_backbone(tmp_path)


@pytest.mark.parametrize("name", ["doesnotexist/x/y", "./nowhere"])
def test_a_folder_that_there_is_not_is_named(name: str) -> None:
    with pytest.raises(ValueError, match="there is no such folder"):
        load_backbone(name)


def test_what_a_name_may_be_is_said_where_it_is_none() -> None:
    with pytest.raises(ValueError, match=r"\(valid: nano, a local folder, a hub id\)"):
        load_backbone("nanno")


def test_a_tokenizer_of_a_larger_vocabulary_is_refused(
    tmp_path: Path, official_with_tokenizer: Path
) -> None:
    official_checkpoint(tmp_path)  # 40 tokens
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((official_with_tokenizer / name).read_bytes())
    with pytest.raises(ValueError, match="do not belong together"):
        load_backbone(tmp_path)


@pytest.mark.parametrize("method", ["llada", "fef"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_logits_that_are_not_finite_are_refused(method: str, value: float) -> None:
    logits_LV = torch.zeros(8, 6)
    logits_LV[6, 2] = value
    with pytest.raises(ValueError, match="logits are not finite"):
        decode(FixedLogits(logits_LV), torch.tensor([1, 2]), method=method, gen_length=6)


def test_a_probability_of_zero_is_no_damage() -> None:
    logits_LV = torch.zeros(8, 6)
    logits_LV[:, 2] = -torch.inf
    assert (
        2
        not in decode(
            FixedLogits(logits_LV), torch.tensor([1, 2]), method="llada", gen_length=6
        ).tokens
    )


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


@pytest.mark.parametrize("name", ["llada", "a2d-qwen3"])
def test_a_missing_tensor_is_named(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    part = "1.attn_norm" if name == "llada" else "1.input_layernorm"
    folder = changed_weights(
        checkpoint(name, tmp_path), lambda weights: weights.pop(matching(weights, part))
    )
    assert "no weights for model.layers.1.input_layernorm.weight" in refusal(folder, capfd)


@pytest.mark.parametrize("name", ["llada", "a2d-qwen3"])
def test_a_misshapen_tensor_is_named_with_shapes(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def cut(weights: Weights) -> None:
        key = matching(weights, "0.q_proj" if name == "llada" else "0.self_attn.q_proj.weight")
        weights[key] = weights[key][:16].clone()

    message = refusal(changed_weights(checkpoint(name, tmp_path), cut), capfd)
    whole = "64x32" if name == "a2d-qwen3" else "32x32"
    assert f"model.layers.0.self_attn.q_proj.weight (16x32, not {whole})" in message


def test_an_unknown_model_type_is_refused_with_the_known(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    official_checkpoint(tmp_path, model_type="parrot")
    message = refusal(tmp_path, capfd)
    assert "unknown model_type 'parrot'" in message and "--trust-remote-code" in message
    assert all(name in message for name in FAMILIES)
