"""SSD: LLaDA's tokens, in fewer forwards, whatever the chain."""

from __future__ import annotations

import pytest
import torch
from fakes import FixedLogits, tiny_llada

from harness.laws.oracle import TableBackbone, random_table
from model_wrappers import decode

LENGTH = 16


@pytest.mark.parametrize("draft_length", [1, 3, 8, 20])
@pytest.mark.parametrize("block_length", [4, 8, 16])
@pytest.mark.parametrize("seed", range(4))
def test_tokens_are_lladas(prompt: torch.Tensor, seed: int, block_length: int, draft_length: int) -> None:
    backbone = tiny_llada(seed)
    lengths = {"gen_length": LENGTH, "block_length": block_length}
    expected = decode(backbone, prompt, "llada", **lengths)
    got = decode(backbone, prompt, "ssd", draft_length=draft_length, **lengths)
    assert torch.equal(got.tokens, expected.tokens) and got.trace.forwards <= expected.trace.forwards


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rule", ["logits_eos_inf", "confidence_eos_eot_inf"])
def test_tokens_are_lladas_under_its_eos_rules(prompt: torch.Tensor, rule: str, seed: int) -> None:
    backbone = tiny_llada(seed, eos_id=7, eot_id=8)
    expected = decode(backbone, prompt, "llada", gen_length=LENGTH, **{rule: True})
    assert torch.equal(decode(backbone, prompt, "ssd", gen_length=LENGTH, **{rule: True}).tokens, expected.tokens)


@pytest.mark.parametrize("block_length", [2, 4, 8])
def test_tokens_are_lladas_where_the_mask_is_chosen(block_length: int) -> None:
    logits_LV = torch.randn(9, 5, generator=torch.Generator().manual_seed(3))
    logits_LV[4, 4] = logits_LV[6, 4] = 9.0  # the mask, id 4, wins there
    backbone = FixedLogits(logits_LV)
    expected = decode(backbone, torch.tensor([0]), "llada", gen_length=8, block_length=block_length)
    got = decode(backbone, torch.tensor([0]), "ssd", gen_length=8, block_length=block_length)
    assert torch.equal(got.tokens, expected.tokens) and (got.tokens == 4).any()


def test_independent_positions_are_decoded_in_few_forwards() -> None:
    logits_LV = torch.tensor([[0.0, 3.0, -9.0], [0.0, 2.0, -9.0], [0.0, 1.0, -9.0], [0.0, 0.5, -9.0], [0.0, 0.2, -9.0]])
    out = decode(FixedLogits(logits_LV), torch.tensor([0]), "ssd", gen_length=4, draft_length=8)
    # One forward with an empty chain, then all three drafts are accepted at once.
    assert out.trace.forwards == 2 and [w.accepted for w in out.trace.windows] == [3]


def test_windows_add_up_to_the_response(prompt: torch.Tensor) -> None:
    trace = decode(tiny_llada(1), prompt, "ssd", gen_length=LENGTH, block_length=8, draft_length=3).trace
    assert sum(w.committed for w in trace.windows) == LENGTH - 1  # the first forward has no chain
    assert trace.rows == 1 + sum(w.proposed + 1 for w in trace.windows)


@pytest.mark.parametrize(
    ("options", "named"), [({"draft_length": 0}, "draft_length"), ({"temperature": 0.5}, "temperature 0")]
)
def test_bad_values_are_refused(options: dict[str, float], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        decode(TableBackbone(random_table(3, 2)), torch.tensor([0]), "ssd", gen_length=2, **options)
