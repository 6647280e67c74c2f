"""Published settings: where they hold, what goes before them, and that every decoder takes what is written for it."""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

from harness.errors import UserError
from harness.options import parsed
from harness.reproduce import RECIPES, PublishedNumber, main, verdict
from harness.runs.options import RunOptions
from harness.runs.resolve import resolve
from harness.runs.selection import methods_named
from harness.suites.published import PUBLISHED, Published, family_of, settings_of_model
from harness.suites.registry import SUITES, suite_named, write_suites
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
    options = parsed(RunOptions, ["--model", model, "--data", str(data), "--suite", "gsm8k,humaneval", *line])
    return {name: method["suites"] for name, method in resolve(options).config.to_json()["methods"].items()}


@pytest.mark.parametrize("entry", PUBLISHED, ids=lambda entry: entry.source)
def test_published_settings_can_be_decoded_with(entry: Published) -> None:
    assert (set(entry.suites) <= set(SUITES) and entry.models) or entry.family or entry.accuracy
    for suite in entry.suites:
        settings = dict(entry.settings(suite) or {})
        check_lengths(settings.pop("gen_length"), settings.pop("block_length"))
        check_options(METHODS[entry.decoder or "llada"], settings)


def test_fast_dllms_rows_have_its_blocks_and_lladas_row_has_its_own(data: Path) -> None:
    found = settings(data, "--methods", "llada,threshold,factor,entropy")
    assert found["llada"]["gsm8k"] == {"gen_length": 256, "block_length": 8, "options": {"steps": 256}}
    assert found["entropy"]["gsm8k"] == {"gen_length": 256, "block_length": 8, "options": {}}
    for name, options in (("threshold", {"tau": 0.9}), ("factor", {"f": 1.0})):
        own = found[name]["gsm8k"]
        assert (own["gen_length"], own["block_length"], own["options"]) == (256, 32, options)
        assert own["published"].startswith("NVlabs/Fast-dLLM@")
    assert found["threshold"]["humaneval"]["options"] == {"tau": 0.9, "logits_eos_inf": True}


def test_what_a_preset_or_the_command_line_sets_goes_before_them(data: Path) -> None:
    own = settings(data, "--methods", "threshold(tau=0.8)", "--gen-length", "64")["threshold(tau=0.8)"]["gsm8k"]
    assert own == {"gen_length": 64, "block_length": 32, "options": {"tau": 0.8}}  # and no source


def test_blocks_are_not_longer_than_responses(data: Path) -> None:
    assert settings(data, "--methods", "threshold", "--gen-length", "16")["threshold"]["gsm8k"]["block_length"] == 16


def test_they_do_not_hold_for_generated_problems() -> None:
    own = settings("generated", "--methods", "threshold")["threshold"]["gsm8k"]
    assert own == {"gen_length": 48, "block_length": 48, "options": {}}


@pytest.mark.parametrize(
    ("model", "family"), [(LLADA, "llada"), ("nano", "llada"), ("someone/else", ""), ("a b//c", ""), ("", "")]
)
def test_the_family_is_that_of_the_config_or_of_the_name(model: str, family: str) -> None:
    assert family_of(model) == family


@pytest.mark.parametrize("text", ["{", "[]", '{"model_type": 5}'])
def test_a_damaged_config_is_left_to_the_loader(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert family_of(str(tmp_path)) in ("", "5")


# Those of a model
@pytest.mark.parametrize("model", ["nano", "some/folder/LLaDA-8B-Instruct", "own-model"])
def test_a_model_without_settings_has_the_suites(model: str) -> None:
    suite = suite_named("gsm8k")
    assert suite.settings_for(model, small=False) == suite.lengths


@pytest.mark.parametrize(
    ("model", "suite", "length", "block", "options"),
    [
        ("/models/LLaDA-1___5/", "math500", 1024, 128, {"options": {"confidence_eos_eot_inf": True}}),
        ("Dream-org/Dream-v0-Instruct-7B", "humaneval", 768, 768, {}),
        ("apple/DiffuCoder-7B-cpGRPO", "mbpp", 256, 256, {}),
        ("inclusionAI/LLaDA-MoE-7B-A1B-Instruct", "gsm8k", 1024, 64, {}),
    ],
)
def test_a_model_has_the_settings_of_its_name(
    model: str, suite: str, length: int, block: int, options: dict[str, Any]
) -> None:
    assert settings_of_model(model, suite) == {"gen_length": length, "block_length": block, **options}
    assert settings_of_model(model, "lists") is None


# Published numbers as recipes
NONE = {f"speedup{end}": math.nan for end in ("", "_low", "_high")}


def row(accuracy: float, low: float, high: float, **more: float) -> dict[str, Any]:
    return {"accuracy": accuracy, "accuracy_low": low, "accuracy_high": high, "scored": 100, **NONE, **more}


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_a_method_with_settings_on_its_suite(name: str) -> None:
    recipe = RECIPES[name]
    (preset,) = methods_named(recipe.element).values()
    setting = preset.for_suite(recipe.suite, suite_named(recipe.suite).settings_for(recipe.model, small=False), {})
    assert recipe.options.items() <= {**preset.given, **setting.options}.items()
    assert 0 < recipe.accuracy < 100 and recipe.source and name.endswith(recipe.suite)


def test_a_number_is_the_same_where_its_interval_holds_what_was_published() -> None:
    recipe = PublishedNumber("m", "gsm8k", "llada", 78.9, "somewhere")
    assert "measured 75.0% (70.0 to 80.0): the same; 100 problems" in verdict(recipe, row(75, 70, 80))
    assert "not the same" in verdict(recipe, row(75, 72, 78))
    assert verdict(recipe, row(75, 72, 78), unlike=["--dtype"]).endswith("100 problems; with --dtype")


def test_a_speed_has_a_verdict_of_its_own() -> None:
    speeds = {"speedup": 0.7, "speedup_low": 0.6, "speedup_high": 0.8}
    said = verdict(PublishedNumber("m", "gsm8k", "fef-2", 79, "somewhere", 3.55), row(78, 70, 85, **speeds))
    assert "speedup: published 3.55x, measured 0.70x (0.60 to 0.80): not the same" in said


def test_another_prompt_or_judge_is_said() -> None:
    number = PublishedNumber("m", "gsm8k", "block", 80, "somewhere", judge="lm-eval")
    assert "lm-eval" in verdict(number, row(80, 70, 90))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["nothing"], "no recipe nothing"),
        ([], "a recipe's name is needed"),
        (["llada-8b/gsm8k", "--gen-length=8"], "takes no --gen-length"),
        (["llada-8b/gsm8k", "--plan"], "takes no --plan"),
        (["llada-8b/gsm8k", "--model", "nano", "--data", "FOLDER"], "was published of real problems and GSAI-ML/LLaDA"),
        (["llada-8b/gsm8k", "--data", "generated"], "was published of real problems and GSAI-ML/LLaDA"),
    ],
)
def test_what_is_no_recipe_is_refused(line: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        main(line)


@pytest.mark.slow
def test_a_recipe_runs(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = PublishedNumber(
        LLADA, "humaneval", "wino", 75.8, "somewhere", options={"gen_length": 32, "block_length": 32}
    )
    monkeypatch.setitem(RECIPES, "short/code", short)
    (tmp_path / "copy").mkdir()
    for file in filter(Path.is_file, (ROOT / "model_wrappers" / "nano").iterdir()):
        shutil.copy(file, tmp_path / "copy")
    line = ["short/code", "--model", str(tmp_path / "copy"), "--data", str(data), "--limit", "1"]
    assert main([*line, "--quiet", "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "short/code: accuracy: published 75.8%, measured" in said and f"; measured with {tmp_path}/copy" in said
