"""The autoregressive reference: transformers' greedy tokens, one call a token, and nothing else
decodes it."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from families import CAUSAL, tiny
from transformers import AutoModelForCausalLM

from model_wrappers import Backbone, decode, load_backbone
from model_wrappers.decoders import METHODS
from model_wrappers.trace import EventLog

LENGTH, PROMPT = 12, torch.tensor([5, 9, 2, 7])


@pytest.fixture(params=CAUSAL)
def backbone(request: pytest.FixtureRequest) -> Backbone:
    return tiny(request.param)


def test_tokens_are_those_of_transformers_generate(backbone: Backbone, tmp_path: Path) -> None:
    backbone.model.save_pretrained(tmp_path)
    loaded = load_backbone(tmp_path)
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path)
    for number in range(8):
        prompt_P = (PROMPT + number) % 30
        out = decode(loaded, prompt_P, "ar", gen_length=LENGTH)
        ends = {"eos_token_id": loaded.eos_id, "pad_token_id": loaded.eos_id}
        whole = model.generate(prompt_P[None], max_new_tokens=LENGTH, do_sample=False, **ends)
        expected = whole[0, len(prompt_P) :].tolist()
        assert out.tokens.tolist() == expected + [loaded.eos_id] * (LENGTH - len(expected))


def test_a_call_has_one_token_behind_the_prompt_and_the_first_has_all_of_it(
    backbone: Backbone,
) -> None:
    log = EventLog()
    out = decode(backbone, PROMPT, "ar", gen_length=LENGTH, logits_eos_inf=True, observer=log)
    assert out.trace.forwards == out.trace.rows == LENGTH
    assert out.trace.token_forwards == len(PROMPT) + LENGTH - 1
    assert out.trace.cached_tokens == sum(range(len(PROMPT), len(PROMPT) + LENGTH - 1))
    assert backbone.eos_id not in out.tokens.tolist()


def test_it_stops_at_the_end_of_a_turn_and_fills_with_eos(backbone: Backbone) -> None:
    free = decode(backbone, PROMPT, "ar", gen_length=LENGTH, logits_eos_inf=True).tokens.tolist()
    backbone.eot_id = free[3]
    first = free.index(free[3])
    out = decode(backbone, PROMPT, "ar", gen_length=LENGTH)
    assert out.trace.forwards == first + 1
    assert out.tokens.tolist() == free[: first + 1] + [backbone.eos_id] * (LENGTH - first - 1)


def test_samples_are_from_the_models_own_law() -> None:
    backbone = tiny(CAUSAL[0])
    draws = [
        int(decode(backbone, PROMPT, "ar", gen_length=1, temperature=1.0, seed=n).tokens[0])
        for n in range(400)
    ]
    causal = torch.ones(4, 4).tril().bool()
    logits_1nV, _ = backbone.extend(PROMPT[None], torch.arange(4), torch.tensor([3]), None, causal)
    probs_V = torch.softmax(logits_1nV[0, 0], -1)
    seen_V = torch.zeros_like(probs_V)
    for token, count in Counter(draws).items():
        seen_V[token] = count / len(draws)
    # P(TV of 400 draws from 40 tokens > 0.5 sqrt(40 / 400) + eps) <= exp(-800 eps^2): here below
    # 1e-6.
    assert float((seen_V - probs_V).abs().sum()) / 2 < 0.5 * (40 / 400) ** 0.5 + 0.132


@pytest.mark.parametrize("method", [name for name in METHODS if name != "ar"])
def test_other_decoders_are_refused(method: str) -> None:
    with pytest.raises(
        ValueError,
        match=f"{method} decodes diffusion models, and this one is autoregressive: use ar",
    ):
        decode(tiny("qwen2"), PROMPT, method, gen_length=LENGTH)


@pytest.mark.parametrize("name", ["llada", "sdar", "diffusion_gemma"])
def test_it_decodes_no_diffusion_model(name: str) -> None:
    with pytest.raises(
        ValueError, match="ar decodes autoregressive models, and this is a diffusion model"
    ):
        decode(tiny(name), PROMPT, "ar", gen_length=LENGTH)
