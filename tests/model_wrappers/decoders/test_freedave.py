"""FreeDave: LLaDA's tokens, in fewer forwards, whatever the number of drafts."""

from __future__ import annotations

import pytest
import torch
from fakes import FixedLogits, tiny_llada

from model_wrappers import decode

LENGTH = 16


@pytest.mark.parametrize("draft_steps", [1, 2, 4, 20])
@pytest.mark.parametrize("block_length", [4, 8, 16])
@pytest.mark.parametrize("seed", range(4))
def test_tokens_are_lladas(prompt: torch.Tensor, seed: int, block_length: int, draft_steps: int) -> None:
    backbone = tiny_llada(seed)
    lengths = {"gen_length": LENGTH, "block_length": block_length}
    expected = decode(backbone, prompt, "llada", **lengths)
    got = decode(backbone, prompt, "freedave", draft_steps=draft_steps, **lengths)
    assert torch.equal(got.tokens, expected.tokens) and got.trace.forwards <= expected.trace.forwards


@pytest.mark.parametrize("rule", ["logits_eos_inf", "confidence_eos_eot_inf"])
def test_tokens_are_lladas_under_its_eos_rules(prompt: torch.Tensor, rule: str) -> None:
    backbone = tiny_llada(1, eos_id=7, eot_id=8)
    expected = decode(backbone, prompt, "llada", gen_length=LENGTH, **{rule: True})
    assert torch.equal(decode(backbone, prompt, "freedave", gen_length=LENGTH, **{rule: True}).tokens, expected.tokens)


@pytest.mark.parametrize("block_length", [2, 4, 8])
def test_tokens_are_lladas_where_the_mask_is_chosen(block_length: int) -> None:
    logits_LV = torch.randn(9, 5, generator=torch.Generator().manual_seed(3))
    logits_LV[4, 4] = logits_LV[6, 4] = 9.0  # the mask, id 4, wins there
    backbone = FixedLogits(logits_LV)
    expected = decode(backbone, torch.tensor([0]), "llada", gen_length=8, block_length=block_length)
    got = decode(backbone, torch.tensor([0]), "freedave", gen_length=8, block_length=block_length)
    assert torch.equal(got.tokens, expected.tokens) and (got.tokens == 4).any()


def test_independent_positions_are_decoded_in_two_forwards() -> None:
    logits_LV = torch.tensor([[0.0, 3.0, -9.0], [0.0, 2.0, -9.0], [0.0, 1.0, -9.0], [0.0, 0.5, -9.0], [0.0, 0.2, -9.0]])
    out = decode(FixedLogits(logits_LV), torch.tensor([0]), "freedave", gen_length=4, draft_steps=8)
    # The fourth state fills the block and need not run.
    assert (out.trace.forwards, out.trace.rows) == (2, 4) and [w.accepted for w in out.trace.windows] == [3]


def test_it_is_refused_above_temperature_0(prompt: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="temperature 0"):
        decode(tiny_llada(), prompt, "freedave", gen_length=4, temperature=0.5)
