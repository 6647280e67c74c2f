"""Published settings: where they hold, what goes before them, and that every decoder takes what is written for it."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.methods.published import PUBLISHED, Published, family_of, published_settings
from harness.methods.selection import methods_named
from harness.options import RunOptions, parsed
from harness.reproduce import RECIPES, Recipe, main, verdict
from harness.runs.resolve import resolve
from harness.suites.registry import SUITES, generation_settings, settings_for, suite_named
from harness.suites.splits import write_suites
from model_wrappers import METHODS
from model_wrappers.api import check_lengths, check_options
from model_wrappers.backbones.registry import FAMILIES
from model_wrappers.backbones.registry import published_settings as settings_of_model

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


@pytest.mark.parametrize("entry", PUBLISHED, ids=lambda entry: entry.decoder)
def test_a_source_is_a_commit_and_the_suites_are_known(entry: Published) -> None:
    commit = entry.source.partition("@")[2].split()[0]
    assert len(commit) == 40 and set(commit) <= set("0123456789abcdef")
    assert set(entry.suites) <= set(SUITES)
    for own in entry.suites.values():
        lengths = entry.lengths | own
        assert lengths["gen_length"] % lengths["block_length"] == 0


@pytest.mark.parametrize(
    "entry", [each for each in PUBLISHED if each.decoder in METHODS], ids=lambda each: each.decoder
)
def test_a_decoder_takes_the_options_that_are_published_for_it(entry: Published) -> None:
    for own in entry.suites.values():
        options = {**entry.options, **own}
        assert all(METHODS[entry.decoder].takes(name) for name in options if name not in entry.lengths)


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


@pytest.mark.parametrize(("model", "data"), [("nano", "generated"), (LLADA, "generated"), ("nano", "real")])
def test_they_do_not_hold_for_nano_and_not_for_generated_problems(model: str, data: str, tmp_path: Path) -> None:
    write_suites(tmp_path, count=3)
    where = tmp_path if data == "real" else data
    own = settings(where, "--methods", "threshold", model=model)["threshold"]["gsm8k"]
    assert own == {"gen_length": 48, "block_length": 48, "options": {}}


def test_another_family_has_no_settings_of_lladas(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "dream"}))
    assert family_of(str(tmp_path)) == "dream" and published_settings("threshold", "dream", "gsm8k") == ({}, "")


@pytest.mark.parametrize(
    ("model", "family"), [(LLADA, "llada"), ("nano", "llada"), ("someone/else", ""), ("a b//c", ""), ("", "")]
)
def test_the_family_is_that_of_the_config_or_of_the_name(model: str, family: str) -> None:
    assert family_of(model) == family


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"model_type": 5}'])
def test_a_damaged_config_is_left_to_the_loader(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert family_of(str(tmp_path)) in ("", "5")


# Those of a model


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
    found = settings_of_model("GSAI-ML/LLaDA-1.5", "math")
    assert found is not None and "EVAL.md" in found[1]
    assert settings_of_model("GSAI-ML/LLaDA-1.5", "lists") is None


# Published numbers as recipes


NONE = {f"speedup{end}": math.nan for end in ("", "_low", "_high")}


def row(accuracy: float, low: float, high: float, **more: float) -> dict[str, Any]:
    return {"accuracy": accuracy, "accuracy_low": low, "accuracy_high": high, "scored": 100, **NONE, **more}


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_a_method_with_settings_on_its_suite(name: str) -> None:
    recipe = RECIPES[name]
    (preset,) = methods_named(recipe.element).values()
    setting = preset.for_suite(recipe.suite, settings_for(suite_named(recipe.suite), recipe.model, small=False), {})
    assert recipe.options.items() <= {**preset.asked, **setting.options}.items()
    assert 0 < recipe.accuracy < 100 and recipe.source and name.endswith(recipe.suite)


def test_llada_has_the_settings_that_a_run_of_its_model_would_have() -> None:
    for recipe in (each for name, each in RECIPES.items() if name.startswith("llada-")):
        usual = settings_for(suite_named(recipe.suite), recipe.model, small=False)
        assert recipe.options == {key: usual[key] for key in ("gen_length", "block_length")} | usual.get("options", {})


def test_a_number_is_the_same_where_its_interval_holds_what_was_published() -> None:
    recipe = Recipe("m", "gsm8k", "llada", 78.9, "somewhere")
    assert "measured 75.0% (70.0 to 80.0): the same; 100 problems" in verdict(recipe, row(75, 70, 80))
    assert "not the same" in verdict(recipe, row(75, 72, 78))


def test_a_speed_has_a_verdict_of_its_own() -> None:
    speeds = {"speedup": 0.7, "speedup_low": 0.6, "speedup_high": 0.8}
    said = verdict(Recipe("m", "gsm8k", "fef-2", 79, "somewhere", 3.55), row(78, 70, 85, **speeds))
    assert "speedup: published 3.55x, measured 0.70x (0.60 to 0.80): not the same" in said


def test_another_prompt_or_judge_is_said() -> None:
    assert "lm-eval" in verdict(Recipe("m", "gsm8k", "block", 80, "somewhere", judge="lm-eval"), row(80, 70, 90))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["nothing"], "no recipe nothing"),
        ([], "a recipe's name is needed"),
        (["llada-8b/gsm8k", "--gen-length=8"], "--gen-length is what"),
        (["llada-8b/gsm8k", "--plan"], "--plan is an option of"),
    ],
)
def test_what_is_no_recipe_is_refused(line: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        main(line)


@pytest.mark.slow
def test_a_recipe_runs(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wino/gsm8k", "--model", "nano", "--limit", "1", "--quiet", "--out", str(tmp_path / "run")]) == 0
    assert "wino/gsm8k: accuracy: published 75.8%, measured" in capsys.readouterr().out
