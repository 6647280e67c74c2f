"""Peak memory of passes, and random weights in a given shape."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fakes import tiny_llada

from harness.costs import architectures
from harness.costs.architectures import ARCHITECTURES, random_backbone
from harness.costs.memory import bench_memory, peak_bytes
from harness.errors import UserError

CPU = torch.device("cpu")


def test_the_peak_is_the_most_that_is_held_at_once() -> None:
    def call() -> None:
        first = torch.zeros(1000)
        second = torch.zeros(2000)
        del first, second
        torch.zeros(1500)

    assert peak_bytes(call, CPU) == 4 * 3000
    assert peak_bytes(lambda: None, CPU) == 0


def test_memory_is_relative_to_a_plain_forward() -> None:
    table = bench_memory(tiny_llada(), prompt=8, response=16).set_index("pass")
    assert table.loc["plain forward", "plain forwards"] == table.loc["plain forward", "with weights"] == 1
    literal = table.loc["literal verification, 16 rows"]
    assert literal["plain forwards"] > literal["with weights"] > 1
    assert "two-stream verification, window 64" not in table.index  # of 24 tokens
    assert "two-stream verification, window 64" in set(bench_memory(tiny_llada(), 32, 32)["pass"])


def test_a_pass_that_does_not_fit_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = tiny_llada()
    logits = backbone.logits

    def one_row(ids_BL: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        if len(ids_BL) > 1:
            raise torch.OutOfMemoryError
        return logits(ids_BL, **kwargs)

    monkeypatch.setattr(backbone, "logits", one_row)
    table = bench_memory(backbone, prompt=8, response=16).set_index("pass")
    assert table["MB"].isna().to_dict() == {name: name.startswith("literal") for name in table.index}


def parameters(hidden: int, layers: int, mlp: int, vocabulary: int) -> int:
    """Those of a LLaDA model: four square projections, three of the MLP and two norms a layer; two vocabularies."""
    return layers * (4 * hidden**2 + 3 * hidden * mlp + 2 * hidden) + 2 * vocabulary * hidden + hidden


@pytest.mark.parametrize("layers", [None, 1, 3])
def test_random_weights_have_the_shape_and_dtype_that_were_asked_for(layers: int | None) -> None:
    backbone = random_backbone("llada-tiny", dtype="bfloat16", layers=layers)
    weights = list(backbone.model.parameters())
    assert sum(weight.numel() for weight in weights) == parameters(64, layers or 2, 192, 512)
    assert backbone.dtype == torch.bfloat16 and backbone.tokenizer is None
    matrices = torch.cat([weight.flatten() for weight in weights if weight.dim() > 1]).float()
    assert matrices.std().item() == pytest.approx(0.02, rel=0.05)
    assert backbone.logits(torch.zeros(1, 5, dtype=torch.long)).isfinite().all()


def test_the_shape_of_llada_8b_has_its_parameters() -> None:
    shape = ARCHITECTURES["llada-8b"]
    sizes = (shape[name] for name in ("hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size"))
    assert parameters(*sizes) == 8_015_581_184


def test_weights_that_do_not_fit_are_refused_before_they_are_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(architectures, "free_bytes", lambda device: 10**9)
    with pytest.raises(UserError, match=r"16\.03 GB, and 1\.00 GB are free on cpu"):
        random_backbone("llada-8b", dtype="bfloat16")
    assert "need 16.03 GB" in capsys.readouterr().out


@pytest.mark.parametrize(("arch", "layers"), [("llama", None), ("llada-tiny", 0)])
def test_unknown_shapes_are_refused(arch: str, layers: int | None) -> None:
    with pytest.raises(UserError, match=r"valid: llada-8b|at least 1"):
        random_backbone(arch, layers=layers)
