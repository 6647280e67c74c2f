"""Settings belong to a model: those its numbers were published with, else the suite's own."""

from __future__ import annotations

import pytest

from harness.suites.registry import SUITES, generation_settings, settings_for, suite_named
from model_wrappers.api import check_lengths, check_options
from model_wrappers.backbones.registry import FAMILIES, published_settings


@pytest.mark.parametrize("suite", ["gsm8k", "math", "math500", "humaneval", "mbpp", "lists"])
@pytest.mark.parametrize("model", ["nano", "GSAI-ML/LLaDA-8B-Instruct", "some/folder/LLaDA-8B-Instruct", "own-model"])
def test_a_model_without_settings_of_its_own_has_the_suites(suite: str, model: str) -> None:
    assert settings_for(suite_named(suite), model, small=False) == generation_settings(suite_named(suite), small=False)


@pytest.mark.parametrize("model", ["GSAI-ML/LLaDA-1.5", "/models/LLaDA-1.5/", "/models/LLaDA-1___5"])
@pytest.mark.parametrize(
    ("suite", "length", "block"),
    [("gsm8k", 256, 16), ("math", 1024, 128), ("math500", 1024, 128), ("humaneval", 512, 32), ("mbpp", 512, 32)],
)
def test_llada_15_has_those_of_its_opencompass_configurations(model: str, suite: str, length: int, block: int) -> None:
    assert settings_for(suite_named(suite), model, small=False) == {
        "gen_length": length,
        "block_length": block,
        "options": {"confidence_eos_eot_inf": True},
    }


@pytest.mark.parametrize(
    ("model", "suite", "length", "block"),
    [
        ("Dream-org/Dream-v0-Instruct-7B", "humaneval", 768, 768),
        ("Dream-org/Dream-v0-Base-7B", "humaneval", 512, 512),
        ("Dream-org/Dream-Coder-v0-Instruct-7B", "humaneval", 768, 768),
        ("Dream-org/Dream-Coder-v0-Base-7B", "mbpp", 512, 512),
        ("apple/DiffuCoder-7B-cpGRPO", "mbpp", 256, 256),
        ("inclusionAI/LLaDA-MoE-7B-A1B-Instruct", "gsm8k", 1024, 64),
        ("dllm-hub/Qwen3-0.6B-diffusion-mdlm-v0.1", "mbpp", 256, 256),
    ],
)
def test_other_families_have_theirs(model: str, suite: str, length: int, block: int) -> None:
    assert settings_for(suite_named(suite), model, small=False) == {"gen_length": length, "block_length": block}


def test_generated_problems_have_small_lengths_whatever_the_model() -> None:
    gsm8k = suite_named("gsm8k")
    assert settings_for(gsm8k, "GSAI-ML/LLaDA-1.5", small=True) == generation_settings(gsm8k, small=True)


def test_all_published_settings_are_of_suites_that_exist_and_can_be_decoded_with() -> None:
    for family in FAMILIES.values():
        for published in family.published:
            assert published.source
            for suite, settings in published.suites.items():
                assert suite in SUITES
                check_lengths(settings["gen_length"], settings["block_length"])
                check_options("llada", dict(settings.get("options", {})))


def test_the_source_of_settings_is_told() -> None:
    found = published_settings("GSAI-ML/LLaDA-1.5", "math")
    assert found is not None and "EVAL.md" in found[1]
    assert published_settings("GSAI-ML/LLaDA-1.5", "lists") is None
