"""Training of other families: of those that predict a position's own token; shifted ones are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from families import SHIFTED, with_nanos_tokenizer

from harness.errors import UserError
from harness.train import main
from model_wrappers import load_backbone


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "data.jsonl"
    rows = [{"prompt": f"{number}?", "response": "and so on"} for number in range(4)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("objective", ["fef", "llada"])
@pytest.mark.parametrize("name", SHIFTED)
def test_a_shifted_model_is_refused_in_one_line(name: str, objective: str, tmp_path: Path, data: Path) -> None:
    command = [
        "--objective",
        objective,
        "--init",
        str(with_nanos_tokenizer(name, tmp_path / "init")),
        "--data",
        str(data),
    ]
    with pytest.raises(UserError, match=f"{name} models predict a token from the one before it") as refused:
        main([*command, "--out", str(tmp_path / "out")])
    assert "\n" not in str(refused.value) and not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a2d-qwen3", "llada_moe"])
def test_what_a_training_writes_loads_as_the_same_family(name: str, tmp_path: Path, data: Path) -> None:
    folder, out = with_nanos_tokenizer(name, tmp_path / "init"), tmp_path / "out"
    command = ["--objective", "fef", "--init", str(folder), "--data", str(data), "--lr", "1e-3", "--warmup", "0"]
    assert main([*command, "--out", str(out), "--steps", "2", "--save-every", "1"]) == 0
    before, after = load_backbone(folder), load_backbone(out)
    assert (after.family.model_type, after.mask_id, after.eos_id) == (name, before.mask_id, before.eos_id)
    ids_1L = torch.arange(6)[None]
    assert not torch.allclose(after.logits(ids_1L), before.logits(ids_1L), atol=1e-3)
