"""Training of the autoregressive reference: its loss is transformers' own, and what is written decodes with `ar`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from families import tiny
from msgspec.structs import replace

from harness.errors import UserError
from harness.training.data import CorruptedBatches, NextTokenBatches
from harness.training.objectives import next_token_loss
from harness.training.recipes import PRESETS, Size
from harness.training.run import train
from model_wrappers import decode, load_backbone
from model_wrappers.backbones.causal import of_llada

EOS, MASK = 1, 39
TINY = Size(hidden_size=32, layers=1, heads=2, mlp_size=32, max_length=4096)
EXAMPLES = [
    {"prompt": [5, 6], "response": [7, 8, 2], "index": 0},
    {"prompt": [9], "response": [4, 2], "index": 1},
]


def test_a_response_is_predicted_up_to_one_eos() -> None:
    batch = NextTokenBatches(CorruptedBatches(EOS, MASK, 0, lengths=()))(EXAMPLES)  # type: ignore[arg-type]
    inputs, predicted = batch["inputs"], batch["predicted"]
    assert inputs.tolist() == [[5, 6, 7, 8, 2, EOS], [9, 4, 2, EOS, EOS, EOS]]
    assert predicted.tolist() == [[False, False, *[True] * 4], [False, *[True] * 3, False, False]]


def test_the_loss_is_that_of_transformers() -> None:
    model = tiny("llama").model
    batch = NextTokenBatches(CorruptedBatches(EOS, MASK, 0))(EXAMPLES)  # type: ignore[arg-type]
    labels = batch["inputs"].masked_fill(~batch["predicted"], -100)
    with torch.no_grad():
        theirs = model(input_ids=batch["inputs"], labels=labels).loss
        own = next_token_loss(model(input_ids=batch["inputs"]).logits, batch["inputs"], batch["predicted"])
    torch.testing.assert_close(own, theirs)


def test_a_llada_becomes_a_llama_of_its_weights_that_sees_the_past_alone() -> None:
    llada = tiny("llada").model
    made = of_llada(llada)
    assert all(torch.equal(weight, made.state_dict()[name]) for name, weight in llada.state_dict().items())
    ids = torch.tensor([[3, 4, 5, 6]])
    other = torch.tensor([[3, 4, 5, 9]])
    with torch.no_grad():
        torch.testing.assert_close(made(input_ids=ids).logits[:, :3], made(input_ids=other).logits[:, :3])


def test_what_training_writes_decodes(tmp_path: Path) -> None:
    small = replace(PRESETS["nano-ar"], init=None, size=TINY, batch=4, warmup=1, steps=2, examples=8)
    train("ar", small, tmp_path / "ar")
    backbone = load_backbone(tmp_path / "ar")
    assert backbone.family.causal and backbone.tokenizer is not None
    assert decode(backbone, [5, 6, 7], "ar", gen_length=8).trace.forwards <= 8


def test_a_llama_is_trained_by_no_other_objective(tmp_path: Path) -> None:
    train("ar", replace(PRESETS["nano-ar"], init=None, size=TINY, batch=4, warmup=1, steps=1), tmp_path / "ar")
    with pytest.raises(UserError, match="objective ar trains Llamas, and the others diffusion models"):
        train("llada", replace(PRESETS["nano"], init=str(tmp_path / "ar")), tmp_path / "llada")
