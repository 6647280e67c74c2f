"""Published settings: where they hold, what goes before them, and that every decoder takes what is
written for it."""

from pathlib import Path
from typing import Any

import pytest
from generated import write_suites
from msgspec import UNSET
from rendering import render
from run_records import item, save

from harness.errors import UserError
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
        decoding = entry.decoding_on(suite)
        check_options(METHODS[decoding.decoder], settings | decoding.options)


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
    ("model", "decoder", "suite", "changed", "number", "said"),
    [
        (LLADA, "llada", "gsm8k", {}, 78.9, []),
        ("/models/llada-8b-instruct", "llada", "mbpp", {}, 39.6, []),
        (LLADA, "llada", "gsm8k", {"block_length": 128}, 73.24, []),  # of WINO's paper
        (
            LLADA,
            "llada",
            "gsm8k",
            {"gen_length": 64, "block_length": 8},
            78.9,
            ["gen_length=64 (256)"],
        ),
        (LLADA, "llada", "gsm8k", {"steps": 128}, 78.9, ["steps=128 (None)"]),
        (LLADA, "threshold", "gsm8k", {}, None, []),
        ("nano", "llada", "gsm8k", {}, None, []),
    ],
)
def test_an_accuracy_is_that_of_the_same_model_and_decoder_and_names_other_settings(
    model: str,
    decoder: str,
    suite: str,
    changed: dict[str, Any],
    number: float | None,
    said: list[str],
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
    values |= {"temperature": 0.0, "prompt": "chat"}
    accuracy = published_accuracy(model, decoder, suite, values)
    if number is None:
        assert accuracy is None
    else:
        assert accuracy is not None and (accuracy.percent, accuracy.differences) == (number, said)


def test_a_table_has_the_published_accuracy_beside_the_measured_one(tmp_path: Path) -> None:
    setting = {"gen_length": 256, "block_length": 8, "options": {"steps": 256}}
    short = {"gen_length": 128, "block_length": 64, "options": {}}
    names = ("gsm8k", "math", "lists")
    suites = {"gsm8k": setting, "math": short, "lists": short}
    config = {
        "methods": {"llada": {"label": "LLaDA", "method": "llada", "suites": suites}},
        "suites": {name: {"title": name} for name in names},
        "models": {"base": dict.fromkeys(names, LLADA)},
    }
    run = save(tmp_path, [item("llada", suite, 0) for suite in names], config=config)
    table = render(run, published=True)["main.md"]
    assert "gsm8k Published" in table and "lists Published" not in table
    assert " 78.90 " in table and "- published accuracies: published in ML-GSAI/LLaDA" in table
    assert r"- here otherwise (published): LLaDA on math: gen\_length=128 (512)" in table
    assert "Published" not in render(run)["main.md"]


# --published
DREAM = "Dream-org/Dream-v0-Instruct-7B"


def resolved(data: Path, *line: str, model: str = DREAM, suites: str = "gsm8k,humaneval") -> Any:
    start = ["--model", model, "--data", str(data), "--suite", suites]
    return resolve(parsed(RunOptions, [*start, *line])).config


def test_a_model_is_decoded_as_its_authors_do(data: Path) -> None:
    config = resolved(data, "--published")
    assert config.temperature == 0.1 and config.prompt is UNSET
    (method,) = config.methods.values()
    assert method.method == "dream"
    setting = method.suites["humaneval"]
    assert (setting.gen_length, setting.block_length) == (768, 768)
    assert setting.options == {"top_p": 0.9, "alg": "entropy"}
    assert setting.published.startswith("DreamLM/Dream@")


def test_what_is_given_goes_before_what_the_authors_use(data: Path) -> None:
    config = resolved(
        data, "--published", "--methods", "llada,dream(alg=origin)", "--temperature", "0"
    )
    assert config.temperature == 0.0
    llada, dream = (method.suites["gsm8k"].options for method in config.methods.values())
    assert "top_p" not in llada
    assert dream == {"top_p": 0.9, "alg": "origin"}


def test_without_it_nothing_of_theirs_but_lengths_is_taken(data: Path) -> None:
    config = resolved(data, "--methods", "dream")
    assert config.temperature == 0.0
    assert config.methods["dream"].suites["gsm8k"].options == {}


@pytest.mark.parametrize(
    ("model", "suites", "says"),
    [
        ("Dream-org/Dream-v0-Base-7B", "gsm8k,humaneval", "the temperature is 0.0 or 0.2"),
        ("someone/else", "gsm8k", "has no settings of someone/else on gsm8k"),
    ],
)
def test_what_is_not_known_or_differs_by_suite_is_refused(
    data: Path, model: str, suites: str, says: str
) -> None:
    with pytest.raises(UserError, match=says):
        resolved(data, "--published", model=model, suites=suites)
    if "Base" in model:
        assert resolved(data, "--published", model=model, suites="gsm8k").prompt == "plain"


def test_greedy_decoding_that_users_report_to_fail_is_marked_and_said(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ("--methods", "llada,threshold,fef-2")
    config = resolved(data, *line, suites="gsm8k")
    assert "DreamLM/Dream#56, #72, #84" in capsys.readouterr().err
    resolved(data, *line, "--temperature", "0.1", suites="gsm8k")
    resolved(data, *line, model=LLADA, suites="gsm8k")
    assert "users report" not in capsys.readouterr().err
    methods = [*config.methods]
    items = [item(method, "gsm8k", 0) for method in methods]
    run = save(tmp_path, items, config=config.to_json() | {"data": {"gsm8k": "0"}})
    table = render(run)["main.md"]
    (row,) = (line for line in table.splitlines() if line.startswith("| LLaDA "))
    assert " [g] " in row
    theirs = r"dream, top\_p=0.9, alg=entropy, temperature=0.1, prompt=chat: DreamLM/Dream"
    assert f"- authors decode with: {theirs}" in table


def test_a_run_that_decodes_as_the_authors_do_has_no_line_about_them(
    data: Path, tmp_path: Path
) -> None:
    config = resolved(data, "--published", suites="gsm8k")
    record = config.to_json() | {"data": {"gsm8k": "0"}}
    run = save(tmp_path, [item("dream", "gsm8k", 0)], config=record)
    assert "authors decode with" not in render(run)["main.md"]
