"""SequencePasses and shapes: what is counted is right; what is timed is printed, never asserted."""

import pytest
import torch
from fakes import tiny_llada

from harness.bench import shapes
from harness.bench.passes import Costs, bench_costs, statements
from harness.bench.shapes import random_backbone
from harness.errors import UserError


def test_statements_are_relative_to_a_plain_forward() -> None:
    costs = Costs(2.0, 3.0, 2.5, {1: 2.0, 16: 20.0}, {7: 0.4, 31: 1.0})
    assert costs.passes()["context pass and two-stream verification"] == 3.5
    said = " ".join(statements(costs))
    assert (
        "A 16-token verification pass costs 0.50 plain forwards" in said and "together 1.75" in said
    )
    assert "16 drafts costs 10.00 plain forwards, a draft pass 1.50" in said


def test_a_literal_verification_that_was_not_measured_follows_from_the_fit() -> None:
    costs = Costs(1.0, 1.0, 1.0, {1: 1.0, 2: 1.5, 4: 2.5}, {31: 1.0})
    assert costs.passes()["literal verification of 16 drafts (c_pi)"] == pytest.approx(8.5)


def test_costs_are_measured_for_rows_lengths_and_windows_that_fit() -> None:
    costs, tables = bench_costs(tiny_llada(), prompt=8, response=16, repeats=1, rows=(4, 1, 2))
    assert list(tables) == ["rows", "lengths", "two-stream", "passes", "fits"]
    assert tables["rows"]["rows"].tolist() == [1, 2, 4] == list(costs.literal)
    assert tables["lengths"]["tokens"].tolist() == [6, 12, 24, 48]
    # 80 > 64
    assert bench_costs(tiny_llada(), 20, 20, 1, (1, 2))[1]["lengths"]["tokens"].tolist() == [
        10,
        20,
        40,
    ]
    assert tables["two-stream"]["window"].tolist() == [4, 8, 16]  # 32 and 64 exceed the sequence
    # nobody sees the last draft
    assert tables["two-stream"]["tokens"].tolist() == [
        2 * 4 - 1,
        2 * 8 - 1,
        2 * 16 - 1,
    ]
    assert set(tables["two-stream"]["tokens"]) == set(costs.two_stream)
    assert tables["passes"].set_index("pass").loc["plain forward", "plain forwards"] == 1
    # the others are fitted or extrapolated
    measured = [tables[name] for name in ("rows", "lengths", "two-stream")]
    assert all((table.select_dtypes("number") > 0).all(axis=None) for table in measured)


def parameters(hidden: int, layers: int, mlp: int, vocabulary: int) -> int:
    """Those of a LLaDA model: four square projections, three of the MLP and two norms a layer; two
    vocabularies."""
    return (
        layers * (4 * hidden**2 + 3 * hidden * mlp + 2 * hidden) + 2 * vocabulary * hidden + hidden
    )


@pytest.mark.parametrize("layers", [None, 1, 3])
def test_random_weights_have_the_shape_and_dtype_that_were_asked_for(layers: int | None) -> None:
    backbone = random_backbone("llada-tiny", dtype="bfloat16", layers=layers)
    weights = list(backbone.model.parameters())
    assert sum(weight.numel() for weight in weights) == parameters(64, layers or 2, 192, 512)
    assert backbone.dtype == torch.bfloat16 and backbone.tokenizer is None
    matrices = torch.cat([weight.flatten() for weight in weights if weight.dim() > 1]).float()
    assert matrices.std().item() == pytest.approx(0.02, rel=0.05)
    assert backbone.logits(torch.zeros(1, 5, dtype=torch.long)).isfinite().all()


def test_weights_that_do_not_fit_are_refused_before_they_are_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shapes, "free_bytes", lambda device: 10**9)
    with pytest.raises(UserError, match=r"16\.03 GB, and 1\.00 GB are free on cpu"):
        random_backbone("llada-8b", dtype="bfloat16")
    assert "need 16.03 GB" in capsys.readouterr().out
    with pytest.raises(UserError, match="did you mean llada-8b"):
        random_backbone("llama")
