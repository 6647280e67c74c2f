"""Our Dream sampler against what the official one wrote on tiny checkpoints, and against how often
it drew what (goldens/dream.json, see make_dream.py)."""

import json
from typing import Any

import dream_cases as cases
import pytest
import torch
from enumerated import enumerate_law
from families import tiny
from scipy.stats import chisquare

from model_wrappers import decode


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    return dict(json.loads(cases.GOLDEN.read_text(encoding="utf-8")))


@pytest.mark.parametrize("family", cases.FAMILIES)
def test_tokens_of_tiny_checkpoints_are_the_official_ones(
    golden: dict[str, Any], family: str
) -> None:
    backbone = tiny(family, seed=cases.SEED)
    for name, settings in cases.GREEDY.items():
        ours = [
            decode(backbone, prompt, "dream", gen_length=cases.TOKENS, **settings).tokens.tolist()
            for prompt in cases.PROMPTS
        ]
        assert ours == golden["tokens"][f"{family} {name}"], name


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if "alg_temp" in name else [])
        for name in cases.SAMPLED
    ],
)
def test_the_official_sampler_draws_by_our_law(golden: dict[str, Any], name: str) -> None:
    backbone = cases.conditionals()

    def run(sampler: Any) -> torch.Tensor:
        return decode(
            backbone,
            cases.PROMPT,
            "dream",
            gen_length=cases.LENGTH,
            temperature=cases.TEMPERATURE,
            sampler=sampler,
            **cases.SAMPLED[name],
        ).tokens

    law = enumerate_law(run)
    counts = {tuple(json.loads(tokens)): count for tokens, count in golden["counts"][name].items()}
    assert counts.keys() <= law.keys()  # what top_p leaves out is never drawn
    observed = [counts.get(tokens, 0) for tokens in law]
    expected = [probability * cases.DRAWS for probability in law.values()]
    assert chisquare(observed, expected).pvalue > 1e-3
