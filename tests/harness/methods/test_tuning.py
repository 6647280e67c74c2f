"""Tuning: which settings are tried, what the rule chooses, its file as an element of --methods, and the command."""

import json
from pathlib import Path

import pandas as pd
import pytest
from registered import forgotten

from harness import tune
from harness.errors import UserError
from harness.runs.selection import methods_named
from harness.tune import SPACES, choice_of, choose, decoders_for, settings, spaces_of, with_role
from model_wrappers import METHODS
from model_wrappers.backbones.blocks import Blocks


@pytest.mark.parametrize("decoder", SPACES)
def test_every_decoder_tries_as_many_settings_its_defaults_first_and_none_twice(decoder: str) -> None:
    tried = settings(decoder, 128, budget=10, seed=3)
    assert tried[0].partition("(")[0] == SPACES[decoder].preset
    assert len(tried) == len(set(tried)) == 10
    assert tried == settings(decoder, 128, budget=10, seed=3)
    assert tried != settings(decoder, 128, budget=10, seed=4)


def test_blocks_divide_the_response() -> None:
    lengths = {preset.given["block_length"] for preset in methods_named(all_settings("threshold", 48)).values()}
    assert lengths == {8, 16, 48}


def all_settings(decoder: str, length: int) -> str:
    return ";".join(settings(decoder, length, budget=10_000, seed=0)[1:])


@pytest.mark.parametrize("decoder", SPACES)
def test_all_combinations_of_a_space_are_methods(decoder: str) -> None:
    named = methods_named(all_settings(decoder, 64))
    attends = Blocks(16) if SPACES[decoder].blocks else None
    assert all(preset.for_suite("gsm8k", {"gen_length": 64}, {}, attends=attends) for preset in named.values())


def test_a_setting_decodes_with_the_checkpoint_of_a_role() -> None:
    elements = [with_role(each, "control") for each in settings("entropy", 64, budget=2, seed=0)]
    named = methods_named(";".join(elements))
    assert {preset.role for preset in named.values()} == {"control"}
    assert named["entropy(role=control)"].label == "Entropy (role=control)"


def rows(*own: tuple[str, str, str, float, float]) -> pd.DataFrame:
    columns = ["suite", "decoder", "role", "accuracy", "seconds"]
    frame = pd.DataFrame(own, columns=columns)
    settings = [{"tau": number} for number in range(len(frame))]
    return frame.assign(settings=settings, method=frame["decoder"], checkpoint=frame["role"])


def picked(frame: pd.DataFrame, **wanted: str) -> list[int]:
    own = choose(frame)
    for name, value in wanted.items():
        own = own[own[name] == value]
    return [settings["tau"] for settings in own["settings"]]


DEV = rows(
    ("s", "llada", "base", 90, 10),
    ("s", "threshold", "base", 88.9, 1),  # more than a point below
    ("s", "threshold", "base", 89.0, 2),
    ("s", "threshold", "base", 92.0, 3),
    ("s", "factor", "base", 60.0, 1),
    ("s", "factor", "base", 70.0, 2),
    ("s", "factor", "base", 70.0, 1.5),
)


@pytest.mark.parametrize(
    ("decoder", "fast", "accurate"),
    [("threshold", 2, 3), ("factor", 6, 6)],
    ids=["the fastest within a point of LLaDA's best", "none within: the most accurate, of equals the faster"],
)
def test_the_rule_chooses_a_fast_and_an_accurate_one(decoder: str, fast: int, accurate: int) -> None:
    assert picked(DEV, decoder=decoder, goal="fast") == [fast]
    assert picked(DEV, decoder=decoder, goal="accurate") == [accurate]


def test_the_checkpoint_is_chosen_over_the_means_of_the_suites() -> None:
    frame = rows(
        *[(suite, "llada", "base", 80.0, 10.0) for suite in ("s", "t")],
        *[("s", "wino", "base", 90.0, 2.0), ("t", "wino", "base", 70.0, 1.0)],
        *[("s", "wino", "control", 79.5, 1.0), ("t", "wino", "control", 79.5, 1.0)],
    )
    chosen = choose(frame)
    best = chosen[chosen["best"] & (chosen["decoder"] == "wino")].groupby("goal")["role"].agg(set)
    assert best["fast"] == {"control"}  # base's mean is 80, but it is slower
    assert best["accurate"] == {"base"}


def test_without_llada_there_is_no_bar() -> None:
    with pytest.raises(UserError, match="LLaDA"):
        choose(DEV[DEV["decoder"] != "llada"])


def written(folder: Path) -> Path:
    path = folder / "choice.json"
    path.write_text(json.dumps({"methods": choice_of(choose(DEV))}))
    return path


def test_a_choice_is_an_element_of_methods(tmp_path: Path) -> None:
    path = written(tmp_path)
    named = methods_named(f"llada; {path}")
    tuned = ("llada-tuned-fast", "threshold-tuned-fast", "factor-tuned-fast", "threshold-tuned-accurate")
    assert list(named) == ["llada", *tuned]
    assert methods_named(f"{path}:factor-tuned-fast").keys() == {"factor-tuned-fast"}


@pytest.mark.parametrize("element", ["{}:nobody", "{}:factor-tuned-fast(tau=1)", "{}.json"])
def test_what_a_choice_does_not_have_is_refused(element: str, tmp_path: Path) -> None:
    with pytest.raises(UserError):
        methods_named(element.format(written(tmp_path)))


def test_a_name_near_a_tuned_method_is_answered_with_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean threshold-tuned-fast"):
        methods_named(f"{written(tmp_path)}:threshold-fast")


def test_a_tuned_method_is_refused_on_a_suite_it_was_not_tuned_for(tmp_path: Path) -> None:
    (preset,) = methods_named(f"{written(tmp_path)}:threshold-tuned-fast").values()
    with pytest.raises(UserError, match="not tuned for mbpp"):
        preset.for_suite("mbpp", {"gen_length": 64}, {})


def test_a_block_model_is_tuned_with_its_own_decoders() -> None:
    assert {"llada", "threshold", "fef"} < set(decoders_for(True)) & set(decoders_for(False))
    assert set(decoders_for(True)) - set(decoders_for(False)) == {"editing", "s2d2", "linear", "fef-literal"}
    assert set(decoders_for(False)) - set(decoders_for(True)) == {"wino"}


def test_blocks_and_caches_of_a_block_model_are_not_tuned() -> None:
    assert settings("llada", 64, 10, 0, in_blocks=True) == ["llada"]
    found = settings("threshold", 64, 10, 0, in_blocks=True)
    assert len(found) == 6 and not any("block_length" in each or "cache" in each for each in found)


def own_settings(decoders: str, name: str, budget: int = 10) -> list[str]:
    return settings(name, 64, budget, seed=0, spaces=spaces_of(decoders))


def test_values_in_brackets_are_the_space_the_defaults_first_and_once() -> None:
    found = own_settings("threshold(tau=0.5|0.9|0.99, cache=dual)", "threshold")
    assert found[0] == "threshold(cache=dual,tau=0.9)"
    assert sorted(found[1:]) == ["threshold(cache=dual,tau=0.5)", "threshold(cache=dual,tau=0.99)"]
    assert len(own_settings("klass(conf_threshold=0.5|0.6|0.7, kl_threshold=0.1|0.2)", "klass", budget=4)) == 4
    assert own_settings("linear(min_span=2|4)", "linear")[0] == "s2d2(acceptance=match,min_span=1)"
    assert own_settings("llada/2(steps=8|16)", "llada/2")[0] == "llada/2"  # its steps are made from the length
    assert own_settings("threshold+dual(tau=0.5)", "threshold-dual") == ["threshold+dual(tau=0.5)"]


def test_llada_is_tuned_with_the_others_for_the_rule_needs_it() -> None:
    assert list(spaces_of("threshold; factor(f=1|2)")) == ["llada", "threshold", "factor"]
    assert list(spaces_of("factor, llada")) == ["factor", "llada"]


@pytest.mark.parametrize(
    ("decoders", "says"),
    [
        ("treshold(tau=0.5|0.7)", "did you mean threshold"),
        ("threshold; threshold(tau=0.5)", r"names threshold twice; give all its values in one element"),
        ("nowhere.py:mine(k=1|2)", "nowhere.py: there is no such file"),
        ("threshold(tau=0.5|0.7", "is not closed"),
    ],
)
def test_a_decoder_that_cannot_be_tuned_is_refused(decoders: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        spaces_of(decoders)


MINE = """
from model_wrappers import register
from model_wrappers.options import Options


class Own(Options):
    k: int = 1


@register("mine", label="Mine")
def mine(request, options: Own):
    masked = (request.x_1L[0] == request.mask_id).nonzero()[:, 0]
    request.backbone.logits(request.x_1L, positions=masked)
    request.commit(masked, options.k, None, "filled")
"""


@pytest.mark.usefixtures("registries")
def test_a_decoder_of_a_file_is_tuned_and_its_choice_finds_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    with forgotten():
        spaces = spaces_of(f"{file}:mine(k=1|2|3)")
    assert settings("mine", 64, 10, 0, spaces=spaces)[0] == f"{file}:mine(k=1)"
    dev = rows(("s", "llada", "base", 90, 10), ("s", "mine", "base", 95, 1))
    path = tmp_path / "tuned" / "choice.json"
    path.parent.mkdir()
    chosen = choice_of(choose(dev), SPACES | spaces, path.parent)
    path.write_text(json.dumps({"methods": chosen}))
    assert chosen["mine-tuned-fast"]["plugin"] == "../mine.py"
    (preset,) = methods_named(f"{path}:mine-tuned-fast").values()
    assert (preset.label, preset.decoder) == ("Mine, tuned (fast)", METHODS["mine"])


LINE = ["--suite", "mbpp", "--budget", "2", "--limit", "1", "--threads", "1"]


@pytest.mark.slow
@pytest.mark.usefixtures("registries")
def test_a_tuning_ends_with_a_choice_and_the_same_command_goes_on(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    decoders = f"threshold; {tmp_path}/mine.py:mine(k=5|6)"
    line = [*LINE, "--decoders", decoders, "--out", str(tmp_path / "tuned")]
    assert tune.main(line) == 0
    path = tmp_path / "tuned" / "choice.json"
    first = json.loads(path.read_text())
    assert {"llada-tuned-fast", "threshold-tuned-fast", "mine-tuned-fast"} <= set(methods_named(str(path)))
    assert {method["role"] for method in first["methods"].values()} == {"base", "fef", "control"}
    assert "\n| **threshold** | fast |" in (tmp_path / "tuned" / "choice.md").read_text()
    path.unlink()
    assert tune.main(line) == 0 and json.loads(path.read_text()) == first
