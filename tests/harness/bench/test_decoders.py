"""Decoders: every call is timed, and the tokens are the same; what is timed is printed, never
asserted."""

from typing import Any

import pytest
import torch
from fakes import tiny_llada

from harness.bench.decoders import with_timed_calls
from model_wrappers import decode


@pytest.mark.parametrize(
    "options", [{"method": "llada"}, {"method": "fef", "verify": "two-stream"}]
)
def test_every_call_of_the_model_is_timed_and_the_tokens_are_the_same(
    options: dict[str, Any],
) -> None:
    backbone, prompt_P = tiny_llada(), torch.tensor([1, 2, 3])
    timed, seconds = with_timed_calls(backbone)
    out = decode(timed, prompt_P, gen_length=8, **options)
    assert torch.equal(out.tokens, decode(backbone, prompt_P, gen_length=8, **options).tokens)
    assert len(seconds) == out.trace.forwards
