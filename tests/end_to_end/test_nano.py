"""Lossless decoders on the shipped model (fp32): tokens do not depend on how they were
speculated."""

from functools import partial
from typing import Any

import pytest
import torch
from paths import ROOT

from harness.methods.presets import PRESETS
from harness.records.store import read_run
from harness.suites.registry import problems
from model_wrappers import Backbone, decode, load_backbone
from model_wrappers.chat import encode_question

LENGTH = 32


class Wrapped:
    """A backbone of its own that passes everything on."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self.mask_id, self.eos_id, self.vocab_size = (
            backbone.mask_id,
            backbone.eos_id,
            backbone.vocab_size,
        )
        self.eot_id = backbone.eot_id


class CausalDraft(Wrapped):
    """Nano under a causal mask: a draft unlike the target."""

    def logits(
        self, ids_BL: torch.Tensor, positions: torch.Tensor | None = None, causal: bool = False
    ) -> torch.Tensor:
        return self._backbone.logits(ids_BL, positions, causal=True)


def cases(*suites: str) -> list[Any]:
    """Two dev problems of every suite, as parameters suite and item; all but the first suite's
    first are slow."""
    return [
        pytest.param(suite, item, marks=[pytest.mark.slow] if item or suite != suites[0] else [])
        for suite in suites
        for item in range(2)
    ]


def prompts(nano: Backbone, suite: str, split: str, count: int) -> list[torch.Tensor]:
    tokenizer = nano.text_tokenizer()
    return [
        torch.tensor(encode_question(tokenizer, problem.question))
        for problem in problems(suite, split, count)
    ]


@pytest.mark.parametrize(("suite", "item"), cases("gsm8k", "humaneval", "math", "mbpp"))
@pytest.mark.parametrize("steps", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_greedy_fef_tokens_are_those_without_speculation(suite: str, item: int, steps: int) -> None:
    nano = load_backbone("nano")
    variants = [{"window": window} for window in (1, 4, 8, 16)] + [{"draft": CausalDraft(nano)}]
    prompt = prompts(nano, suite, "dev", 2)[item]
    one_by_one = decode(nano, prompt, "fef", gen_length=LENGTH, steps=steps, speculative=False)
    assert (
        one_by_one.trace.forwards
        == one_by_one.trace.rows
        == (LENGTH if steps == 1 else LENGTH * 3 // 2)
    )
    for options in variants:
        out = decode(nano, prompt, "fef", gen_length=LENGTH, steps=steps, **options)  # type: ignore[arg-type]
        assert torch.equal(out.tokens, one_by_one.tokens), options


@pytest.mark.parametrize(("suite", "item"), cases("gsm8k", "humaneval", "math", "mbpp"))
def test_the_fast_presets_have_the_tokens_of_decoding_one_by_one(suite: str, item: int) -> None:
    """fef-fast those of the paper's law, fef-two-stream those of its own."""
    backbone = load_backbone("nano-fef")
    for name in ("fef-fast", "fef-two-stream"):
        options = PRESETS[name].options
        law = {name: options[name] for name in ("verify", "remask_below") if name in options}
        prompt = prompts(backbone, suite, "dev", 2)[item]
        run = partial(decode, backbone, prompt, "fef", gen_length=LENGTH)
        out, one_by_one = run(**options), run(speculative=False, **law)
        assert torch.equal(out.tokens, one_by_one.tokens)
        assert out.trace.forwards < one_by_one.trace.forwards


def test_ssd_tokens_are_lladas_in_the_golden_records() -> None:
    """Which the gate holds the decoders to."""
    items = read_run(ROOT / "results" / "golden" / "nano").items
    tokens = items.pivot(index=["suite", "item"], columns="method", values="tokens_hash")
    assert len(tokens) == 60 and (tokens["ssd"] == tokens["llada"]).all()
