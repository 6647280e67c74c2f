"""Models that would load and decode nonsense are refused, with what is wrong with them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import FixedLogits, changed_weights, official_checkpoint
from safetensors.torch import load_file

from model_wrappers import decode, load_backbone
from model_wrappers.chat import encode_question

Weights = dict[str, torch.Tensor]
MATRIX = "model.transformer.blocks.1.q_proj.weight"


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
    ],
    ids=["NaN", "inf", "zero", "a weight too many"],
)
def test_weights_that_make_no_model_are_refused(tmp_path: Path, change: Callable[[Weights], Any], says: str) -> None:
    with pytest.raises(ValueError, match=rf"cannot load model .*{says}"):
        load_backbone(changed_weights(official_checkpoint(tmp_path), change))


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
    ],
)
def test_configs_that_do_not_fit_are_refused(tmp_path: Path, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        load_backbone(changed_config(tmp_path, **fields))


@pytest.mark.parametrize("content", ["{}", "[]", "[1]", "null", "5", '"text"', "{", '{"model_type": "llada"}'])
def test_a_config_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    (official_checkpoint(tmp_path) / "config.json").write_text(content)
    with pytest.raises(ValueError, match="cannot load model"):
        load_backbone(tmp_path)


@pytest.mark.parametrize("index", ["{}", '{"metadata": {}, "weight_map": {}}', '{"weight_map": {"a": "../../passwd"}}'])
def test_an_index_of_no_weights_is_refused(tmp_path: Path, index: str) -> None:
    (official_checkpoint(tmp_path) / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ValueError, match="cannot load model"):
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


@pytest.mark.parametrize("template", ["{% for i in range(10**30) %}x{% endfor %}", "{{ messages[99].content }}"])
def test_a_chat_template_that_fails_is_refused(official_with_tokenizer: Path, template: str) -> None:
    tokenizer = load_backbone(official_with_tokenizer).text_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(ValueError, match=r"the chat template of .* fails"):
        encode_question(tokenizer, "2 and 3?")


def test_a_pickle_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (official_checkpoint(tmp_path) / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(ValueError, match="cannot load model"):
        load_backbone(tmp_path)


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
