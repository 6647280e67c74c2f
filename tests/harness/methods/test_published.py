"""Published settings: where they hold, what goes before them, and that every decoder takes what is
written for it."""

from pathlib import Path
from typing import Any

import pytest
from generated import write_suites
from rendering import render
from run_records import item, save

from harness.methods.settings import setting_of
from harness.options import parsed
from harness.runs.options import RunOptions
from harness.runs.resolve import resolve
from harness.runs.selection import methods_named
from harness.suites.published import (
    PUBLISHED,
    Published,
    family_of,
    published_accuracy,
    settings_of_model,
)
from harness.suites.registry import SUITES, suite_named
from model_wrappers.api import check_lengths, check_options
from model_wrappers.decoders import METHODS

LLADA = "GSAI-ML/LLaDA-8B-Instruct"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Problems in the layout of the real ones."""
    folder = tmp_path_factory.mktemp("data")
    write_suites(folder, count=3)
    return folder


def settings(data: Path | str, *line: str, model: str = LLADA) -> dict[str, dict[str, Any]]:
    """The settings of every method on GSM8K and HumanEval."""
    options = parsed(
        RunOptions, ["--model", model, "--data", str(data), "--suite", "gsm8k,humaneval", *line]
    )
    return {
        name: method["suites"]
        for name, method in resolve(options).config.to_json()["methods"].items()
    }


@pytest.mark.parametrize("entry", PUBLISHED, ids=lambda entry: entry.source)
def test_published_settings_can_be_decoded_with(entry: Published) -> None:
    assert (set(entry.suites) <= set(SUITES) and entry.models) or entry.family or entry.accuracy
    for suite in entry.suites:
        settings = dict(entry.settings(suite) or {})
        check_lengths(settings.pop("gen_length"), settings.pop("block_length"))
        check_options(METHODS[entry.decoder or "llada"], settings)


def test_fast_dllms_rows_have_its_blocks_and_lladas_row_has_its_own(data: Path) -> None:
    found = settings(data, "--methods", "llada,threshold,factor,entropy")
    assert found["llada"]["gsm8k"] == {
        "gen_length": 256,
        "block_length": 8,
        "options": {"steps": 256},
    }
    assert found["entropy"]["gsm8k"] == {"gen_length": 256, "block_length": 8, "options": {}}
    for name, options in (("threshold", {"tau": 0.9}), ("factor", {"f": 1.0})):
        own = found[name]["gsm8k"]
        assert (own["gen_length"], own["block_length"], own["options"]) == (256, 32, options)
        assert own["published"].startswith("NVlabs/Fast-dLLM@")
    assert found["threshold"]["humaneval"]["options"] == {"tau": 0.9, "logits_eos_inf": True}


def test_what_a_preset_or_the_command_line_sets_goes_before_them(data: Path) -> None:
    own = settings(data, "--methods", "threshold(tau=0.8)", "--gen-length", "64")[
        "threshold(tau=0.8)"
    ]["gsm8k"]
    assert own == {"gen_length": 64, "block_length": 32, "options": {"tau": 0.8}}  # and no source


def test_they_do_not_hold_for_generated_problems() -> None:
    own = settings("generated", "--methods", "threshold")["threshold"]["gsm8k"]
    assert own == {"gen_length": 48, "block_length": 48, "options": {}}


@pytest.mark.parametrize(
    ("model", "family"),
    [(LLADA, "llada"), ("nano", "llada"), ("someone/else", ""), ("a b//c", ""), ("", "")],
)
def test_the_family_is_that_of_the_config_or_of_the_name(model: str, family: str) -> None:
    assert family_of(model) == family


# Those of a model
@pytest.mark.parametrize("model", ["nano", "some/folder/LLaDA-8B-Instruct", "own-model"])
def test_a_model_without_settings_has_the_suites(model: str) -> None:
    suite = suite_named("gsm8k")
    assert suite.settings_for(model, small=False) == suite.lengths


@pytest.mark.parametrize(
    ("model", "suite", "length", "block", "options"),
    [
        (
            "/models/LLaDA-1___5/",
            "math500",
            1024,
            128,
            {"options": {"confidence_eos_eot_inf": True}},
        ),
        ("Dream-org/Dream-v0-Instruct-7B", "humaneval", 768, 768, {}),
        ("apple/DiffuCoder-7B-cpGRPO", "mbpp", 256, 256, {}),
        ("inclusionAI/LLaDA-MoE-7B-A1B-Instruct", "gsm8k", 1024, 64, {}),
    ],
)
def test_a_model_has_the_settings_of_its_name(
    model: str, suite: str, length: int, block: int, options: dict[str, Any]
) -> None:
    assert settings_of_model(model, suite) == {
        "gen_length": length,
        "block_length": block,
        **options,
    }
    assert settings_of_model(model, "lists") is None


# Published accuracies
@pytest.mark.parametrize(
    ("model", "decoder", "suite", "changed", "number"),
    [
        (LLADA, "llada", "gsm8k", {}, 78.9),
        ("/models/llada-8b-instruct", "llada", "mbpp", {}, 39.6),
        (LLADA, "llada", "gsm8k", {"gen_length": 64, "block_length": 8}, None),
        (LLADA, "llada", "gsm8k", {"steps": 128}, None),
        (LLADA, "threshold", "gsm8k", {}, None),
        ("nano", "llada", "gsm8k", {}, None),
    ],
)
def test_an_accuracy_is_that_of_the_same_model_decoder_and_settings(
    model: str, decoder: str, suite: str, changed: dict[str, Any], number: float | None
) -> None:
    (preset,) = methods_named("llada").values()
    setting = setting_of(
        preset, suite, suite_named(suite).settings_for(LLADA, small=False), changed
    )
    values = {
        "gen_length": setting.gen_length,
        "block_length": setting.block_length,
        **setting.options,
    }
    found = published_accuracy(model, decoder, suite, values)
    assert (found and found[0]) == number


def test_a_table_has_the_published_accuracy_beside_the_measured_one(tmp_path: Path) -> None:
    setting = {"gen_length": 256, "block_length": 8, "options": {"steps": 256}}
    methods = {"llada": {"label": "LLaDA", "method": "llada", "suites": {"gsm8k": setting}}}
    config = {
        "methods": methods,
        "suites": {name: {"title": name} for name in ("gsm8k", "math")},
        "models": {"base": dict.fromkeys(("gsm8k", "math"), LLADA)},
    }
    run = save(tmp_path, [item("llada", suite, 0) for suite in ("gsm8k", "math")], config=config)
    table = render(run, published=True)["main.md"]
    assert "gsm8k Published" in table and "math Published" not in table
    assert " 78.90 " in table and "- published accuracies: published in ML-GSAI/LLaDA" in table
    assert "Published" not in render(run)["main.md"]
