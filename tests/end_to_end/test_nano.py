"""Lossless decoders on the shipped model (fp32): tokens do not depend on how they were speculated."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from harness.methods.presets import PRESETS
from harness.suites.splits import problems
from model_wrappers import Backbone, decode, load_backbone
from model_wrappers.chat import encode_question

SUITES = ("gsm8k", "math", "humaneval", "mbpp")
LENGTH = 32
NOISE = 1e-5  # relative; the same row in batches of different shapes differs by some 1e-6 in fp32


class Wrapped:
    """A backbone of its own that passes everything on."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self.mask_id, self.eos_id, self.vocab_size = backbone.mask_id, backbone.eos_id, backbone.vocab_size
        self.eot_id = backbone.eot_id


class CausalDraft(Wrapped):
    """Nano under a causal mask: a draft unlike the target."""

    def logits(self, ids_BL: torch.Tensor, positions: torch.Tensor | None = None, causal: bool = False) -> torch.Tensor:
        return self._backbone.logits(ids_BL, positions, causal=True)


class Steps(Wrapped):
    """Nano, noting the first row of every call, and how far the best position and token were ahead of the next."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__(backbone)
        self.rows: list[list[int]] = []
        self.leads: list[float] = []

    def logits(self, ids_BL: torch.Tensor, positions: torch.Tensor | None = None, causal: bool = False) -> torch.Tensor:
        logits_BNV = self._backbone.logits(ids_BL, positions, causal)
        probability_N2 = logits_BNV[0].double().softmax(-1).topk(2).values
        best, *others = probability_N2[:, 0].sort(descending=True).values.tolist()
        runners_up = [*others[:1], float(probability_N2[probability_N2[:, 0].argmax(), 1])]
        self.rows.append(ids_BL[0].tolist())
        self.leads.append(1 - max(runners_up) / best)
        return logits_BNV


def cases(*suites: str) -> list[Any]:
    """Two dev problems of every suite, as parameters suite and item; all but the first two suites' first are slow."""
    return [
        pytest.param(suite, item, marks=[pytest.mark.slow] if item or suite not in suites[:2] else [])
        for suite in suites
        for item in range(2)
    ]


def prompts(nano: Backbone, suite: str, split: str, count: int) -> list[torch.Tensor]:
    tokenizer = nano.text_tokenizer()
    return [torch.tensor(encode_question(tokenizer, problem.question)) for problem in problems(suite, split, count)]


@pytest.mark.parametrize(("suite", "item"), cases("gsm8k", "humaneval", "math", "mbpp"))
@pytest.mark.parametrize("steps", [1, 2])
def test_greedy_fef_tokens_are_those_without_speculation(suite: str, item: int, steps: int) -> None:
    nano = load_backbone("nano")
    variants = [{"window": window} for window in (1, 4, 8, 16)] + [{"draft": CausalDraft(nano)}]
    prompt = prompts(nano, suite, "dev", 2)[item]
    one_by_one = decode(nano, prompt, "fef", gen_length=LENGTH, steps=steps, speculative=False)
    assert one_by_one.trace.forwards == one_by_one.trace.rows == (LENGTH if steps == 1 else LENGTH * 3 // 2)
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


@pytest.mark.parametrize(("suite", "item"), cases("gsm8k-long", "humaneval"))
@pytest.mark.parametrize(
    "chain",
    [
        {},
        {"anchor": 8},
        {"refresh_below": 0.7},
        {"order": "confidence"},
        {"order": "confidence", "refresh_below": 0.7},
    ],
    ids=str,
)
def test_tokens_of_a_two_stream_chain_are_the_same_for_every_window_and_draft(
    chain: dict[str, Any], suite: str, item: int
) -> None:
    nano = load_backbone("nano-long")
    prompt = prompts(nano, suite, "dev", 2)[item]
    run = partial(decode, nano, prompt, "fef", gen_length=LENGTH, steps=2, verify="two-stream", **chain)
    one_by_one = run(speculative=False)
    for window in (1, 4, 5, 16, LENGTH):
        assert torch.equal(run(window=window).tokens, one_by_one.tokens), window
    for draft in (load_backbone("nano"), CausalDraft(nano)):
        assert torch.equal(run(draft=draft).tokens, one_by_one.tokens), draft


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES)
def test_ssd_tokens_are_lladas(suite: str) -> None:
    """20 test problems a suite, 80 in all; a difference is only excused by a tie within the noise of batch shapes."""
    nano, draft_length, excused = load_backbone("nano"), 4, 0
    for prompt in prompts(nano, suite, "test", 20):
        stepwise, chained = Steps(nano), Steps(nano)
        expected = decode(stepwise, prompt, "llada", gen_length=LENGTH)
        got = decode(chained, prompt, "ssd", gen_length=LENGTH, draft_length=draft_length)
        assert got.trace.forwards <= LENGTH
        if not torch.equal(got.tokens, expected.tokens):
            # The paths part within one chain of the last sequence that both have seen.
            parted = max(stepwise.rows.index(row) for row in chained.rows if row in stepwise.rows)
            assert min(stepwise.leads[parted : parted + draft_length + 1]) < NOISE
            excused += 1
    print(f"{suite}: {excused} of 20 differ, each at a tie")
