"""FeF-DLLM on the shipped model: greedy tokens do not depend on window, speculation or draft (fp32)."""

from __future__ import annotations

import pytest
import torch

from harness.nano_suites import problems
from model_wrappers import Backbone, decode, load_backbone
from model_wrappers.opencompass_model import encode_chat


class CausalDraft:
    """Nano under a causal mask: a draft unlike the target."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self.mask_id, self.eos_id, self.vocab_size = backbone.mask_id, backbone.eos_id, backbone.vocab_size

    def logits(self, ids_BL: torch.Tensor, positions: torch.Tensor | None = None, causal: bool = False) -> torch.Tensor:
        return self._backbone.logits(ids_BL, positions, causal=True)


@pytest.mark.parametrize("suite", ["gsm8k", "math", "humaneval", "mbpp"])
@pytest.mark.parametrize("steps", [1, 2])
def test_greedy_tokens_are_those_without_speculation(suite: str, steps: int) -> None:
    nano = load_backbone("nano")
    variants = [{"window": window} for window in (1, 4, 8, 16)] + [{"draft": CausalDraft(nano)}]
    for problem in problems(suite, "dev", 2):
        prompt = encode_chat(nano, problem.question)
        one_by_one = decode(nano, prompt, "fef", gen_length=32, steps=steps, speculative=False)
        assert one_by_one.trace.forwards == one_by_one.trace.rows == (32 if steps == 1 else 48)
        for options in variants:
            out = decode(nano, prompt, "fef", gen_length=32, steps=steps, **options)  # type: ignore[arg-type]
            assert torch.equal(out.tokens, one_by_one.tokens), options
