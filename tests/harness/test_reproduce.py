"""Published numbers as recipes: each can be asked for, and what came out is told from what was published."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.errors import UserError
from harness.methods.selection import methods_named
from harness.reproduce import RECIPES, Recipe, main, verdict
from harness.suites.registry import settings_for, suite_named

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
