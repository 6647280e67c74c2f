"""SSD and FreeDave: LLaDA's tokens, in fewer forwards, however much is drafted."""

from typing import Any

import pytest
import torch
from fakes import FixedLogits, tiny_llada

from model_wrappers import decode

LENGTH = 16
DRAFTED = {"ssd": "draft_length", "freedave": "draft_steps"}
every_method = pytest.mark.parametrize("method", DRAFTED)


@pytest.mark.parametrize("drafts", [1, 3, 8, 20])
@pytest.mark.parametrize("block_length", [4, 8, 16])
@pytest.mark.parametrize("seed", range(4))
@every_method
def test_tokens_are_lladas(
    prompt: torch.Tensor, method: str, seed: int, block_length: int, drafts: int
) -> None:
    backbone = tiny_llada(seed)
    lengths = {"gen_length": LENGTH, "block_length": block_length}
    expected = decode(backbone, prompt, "llada", **lengths)
    got = decode(backbone, prompt, method, **lengths, **{DRAFTED[method]: drafts})
    assert (
        torch.equal(got.tokens, expected.tokens) and got.trace.forwards <= expected.trace.forwards
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rule", ["logits_eos_inf", "confidence_eos_eot_inf"])
@every_method
def test_tokens_are_lladas_under_its_eos_rules(
    prompt: torch.Tensor, method: str, rule: str, seed: int
) -> None:
    backbone = tiny_llada(seed, eos_id=7, eot_id=8)
    expected = decode(backbone, prompt, "llada", gen_length=LENGTH, **{rule: True})
    assert torch.equal(
        decode(backbone, prompt, method, gen_length=LENGTH, **{rule: True}).tokens, expected.tokens
    )


@pytest.mark.parametrize("block_length", [2, 4, 8])
@every_method
def test_tokens_are_lladas_where_the_mask_is_chosen(method: str, block_length: int) -> None:
    logits_LV = torch.randn(9, 5, generator=torch.Generator().manual_seed(3))
    logits_LV[4, 4] = logits_LV[6, 4] = 9.0  # the mask, id 4, wins there
    backbone = FixedLogits(logits_LV)
    expected = decode(backbone, torch.tensor([0]), "llada", gen_length=8, block_length=block_length)
    got = decode(backbone, torch.tensor([0]), method, gen_length=8, block_length=block_length)
    assert torch.equal(got.tokens, expected.tokens) and (got.tokens == 4).any()


@pytest.mark.parametrize(("method", "rows"), [("ssd", 5), ("freedave", 4)])
def test_independent_positions_are_decoded_in_two_forwards(method: str, rows: int) -> None:
    """One forward without drafts, then all three are accepted at once; FreeDave need not run the
    state they fill."""
    logits_LV = torch.tensor(
        [[0.0, 3.0, -9.0], [0.0, 2.0, -9.0], [0.0, 1.0, -9.0], [0.0, 0.5, -9.0], [0.0, 0.2, -9.0]]
    )
    options: dict[str, Any] = {DRAFTED[method]: 8}
    out = decode(FixedLogits(logits_LV), torch.tensor([0]), method, gen_length=4, **options)
    assert (out.trace.forwards, out.trace.rows) == (2, rows) and [
        w.accepted for w in out.trace.windows
    ] == [3]


def test_windows_of_ssd_add_up_to_the_response(prompt: torch.Tensor) -> None:
    trace = decode(
        tiny_llada(1), prompt, "ssd", gen_length=LENGTH, block_length=8, draft_length=3
    ).trace
    assert sum(w.committed for w in trace.windows) == LENGTH - 1  # the first forward has no chain
    assert trace.rows == 1 + sum(w.proposed + 1 for w in trace.windows)
