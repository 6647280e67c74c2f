"""Tuning: which settings are tried, what the rule chooses, its file as an element of --methods, and
the command."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from msgspec import structs
from registered import forgotten
from run_records import item, save

from harness import tune
from harness.errors import UserError
from harness.measures.choosing import FINALISTS, choose, dev_of, finalists
from harness.methods.settings import setting_of
from harness.runs.options import RunOptions
from harness.runs.resolve import resolve
from harness.runs.selection import methods_named
from harness.tune import SPACES, choice_of, decoders_for, settings, spaces_of, with_role
from model_wrappers import METHODS
from model_wrappers.backbones.blocks import Blocks

SHORT = {"gsm8k": {"gen_length": 48}, "mbpp": {"gen_length": 64}}
LONG = {"gsm8k-long": {"gen_length": 128, "block_length": 32}}
BLOCK_MODEL = Blocks(16)


def of_model(decoder: str) -> Blocks | None:
    return BLOCK_MODEL if SPACES[decoder].blocks else None


def resolved(
    elements: list[str], suites: dict[str, dict[str, int]], attends: Blocks | None
) -> set[str]:
    """What settings decode with, whatever their spelling."""
    found = set()
    for preset in methods_named(elements).values():
        usual = structs.asdict(preset.decoder.options())
        own = [
            setting_of(preset, name, defaults, blocks=attends) for name, defaults in suites.items()
        ]
        found.add(
            str(
                [
                    (each.gen_length, each.block_length, sorted({**usual, **each.options}.items()))
                    for each in own
                ]
            )
        )
    return found


@pytest.mark.parametrize("decoder", SPACES)
@pytest.mark.parametrize("suites", [SHORT, LONG], ids=["short", "long"])
def test_every_decoder_tries_as_many_different_settings_its_defaults_first(
    decoder: str, suites: dict[str, dict[str, int]]
) -> None:
    tried = settings(decoder, suites, 8, 3, of_model(decoder))
    assert tried[0].partition("(")[0] == SPACES[decoder].preset
    assert len(tried) == len(resolved(tried, suites, of_model(decoder))) == 8
    assert tried == settings(decoder, suites, 8, 3, of_model(decoder))
    assert tried != settings(decoder, suites, 8, 4, of_model(decoder))


def test_a_smaller_space_gives_all_it_has_once() -> None:
    assert settings("llada", SHORT, 8, 0, BLOCK_MODEL) == ["llada"]
    # the default is one of its five
    assert len(settings("threshold", SHORT, 8, 0, BLOCK_MODEL)) == 5


def test_blocks_divide_the_responses_of_every_suite() -> None:
    found = methods_named(settings("threshold", SHORT, 10_000, 0)).values()
    assert {preset.given.get("block_length") for preset in found} == {8, 16, None}


def test_a_setting_decodes_with_the_checkpoint_of_a_role() -> None:
    elements = [with_role(each, "control") for each in settings("entropy", SHORT, 2, 0)]
    named = methods_named(";".join(elements))
    assert {preset.role for preset in named.values()} == {"control"}
    assert named["entropy(role=control)"].row == "Entropy (role=control)"


def rows(*own: tuple[str, str, list[int], float]) -> pd.DataFrame:
    """Settings on two suites, with how many problems are right, of 200 and of 50, and seconds on
    the first."""
    made = []
    for number, (decoder, role, (first, second), seconds) in enumerate(own):
        right = {"s": np.arange(200) < first, "t": np.arange(50) < second}
        made.append(
            {
                **{"name": f"{decoder}-{number}", "decoder": decoder, "method": decoder},
                **{"role": role, "checkpoint": role},
                "settings": {suite: {"tau": number} for suite in "st"},
                "right": {suite: each.astype(float) for suite, each in right.items()},
                "seconds": {"s": seconds, "t": 2 * seconds},
            }
        )
    return pd.DataFrame(made)


def picked(frame: pd.DataFrame, decoder: str, goal: str) -> list[int]:
    own = choose(frame)
    return [
        each["s"]["tau"]
        for each in own.loc[(own["decoder"] == decoder) & (own["goal"] == goal), "settings"]
    ]


DEV = rows(
    ("llada", "base", [150, 30], 10),
    ("llada", "control", [160, 40], 12),  # the bar: 80%
    ("llada", "control", [160, 40], 8),  # as accurate, and less cautious
    ("threshold", "base", [140, 40], 1),  # 75%, and significantly fewer
    ("threshold", "control", [159, 38], 2),
    ("threshold", "control", [170, 40], 3),
    ("factor", "base", [60, 10], 1),
    ("factor", "base", [80, 10], 2),
    ("factor", "base", [80, 10], 1.5),
)


@pytest.mark.parametrize(
    ("decoder", "fast", "accurate"),
    [("llada", 2, 1), ("threshold", 4, 5), ("factor", 7, 7)],
    ids=[
        "LLaDA's best is the bar, of equals the more cautious",
        "the fastest that a paired test does not show to be below, setting and checkpoint together",
        "none is not below: the most accurate, of equals the slower",
    ],
)
def test_the_rule_chooses_a_fast_and_an_accurate_one(
    decoder: str, fast: int, accurate: int
) -> None:
    assert picked(DEV, decoder, "fast") == [fast]
    assert picked(DEV, decoder, "accurate") == [accurate]


def test_the_bar_is_lladas_most_accurate_row_over_the_mean_of_suites_of_unequal_size() -> None:
    # Pooled, the first LLaDA has more problems right (170 and 140 of 250); in the mean of suites
    # the second has.
    frame = rows(
        ("llada", "base", [150, 20], 3),
        ("llada", "base", [100, 40], 1),
        ("threshold", "base", [100, 40], 2),
    )
    chosen = choose(frame).set_index(["decoder", "goal"])
    assert chosen.loc[("llada", "accurate"), "settings"]["s"] == {"tau": 1}
    assert (
        chosen.loc[("threshold", "fast"), "p_below"] == 1.0
        and chosen.loc[("threshold", "fast"), "speed"] == 0.5
    )


def test_all_problems_are_for_settings_that_no_other_beats_in_accuracy_and_speed() -> None:
    more = [("entropy", "base", [150 + 2 * n, 30], 10.0 + n) for n in range(FINALISTS + 2)]
    frame = pd.concat([DEV, rows(*more)], ignore_index=True)
    worse = rows(
        ("fef", "base", [150, 30], 5.0),
        *(("fef", "base", [149 - n, 30], 6.0 + n) for n in range(6)),
    )
    kept = finalists(pd.concat([frame, worse], ignore_index=True))
    # All of LLaDA, threshold and factor; of entropy the most accurate; of fef one that all others
    # lose to, and they.
    ends = len(frame)
    assert kept.index.tolist() == [
        *range(9),
        *range(ends - FINALISTS, ends),
        *range(ends, ends + FINALISTS),
    ]


def test_without_a_verdict_there_is_no_bar() -> None:
    torn = rows(("llada", "base", [150, 30], 10))
    torn["right"][0]["t"][3] = np.nan
    with pytest.raises(UserError, match="problems of t have no verdict"):
        choose(torn)


def written(folder: Path) -> Path:
    path = folder / "choice.json"
    path.write_text(json.dumps({"methods": choice_of(choose(DEV), SPACES, path.parent)}))
    return path


def test_a_choice_is_an_element_of_methods(tmp_path: Path) -> None:
    path = written(tmp_path)
    named = methods_named(f"llada; {path}")
    tuned = ("llada-tuned-fast", "threshold-tuned-fast", "factor-tuned-fast")
    assert list(named) == ["llada", *tuned, "llada-tuned-accurate", "threshold-tuned-accurate"]
    assert named["threshold-tuned-fast"].role == "control"
    assert methods_named(f"{path}:factor-tuned-fast").keys() == {"factor-tuned-fast"}


@pytest.mark.parametrize("said", [{"problems": {"gsm8k": "generated:7"}}, {"data": "generated:7"}])
def test_a_choice_says_which_problems_it_was_tuned_on(said: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "choice.json"
    method = {"label": "LLaDA", "method": "llada", "role": "base", "suites": {"gsm8k": {}}}
    path.write_text(json.dumps({**said, "methods": {"llada-tuned-fast": method}}))
    (own,) = (
        resolve(RunOptions(methods=str(path), suite="gsm8k"))
        .config.methods["llada-tuned-fast"]
        .suites.values()
    )
    assert own.tuned_on == "generated:7"


def test_choices_of_several_kinds_of_task_make_one_row_with_a_checkpoint_by_suite(
    tmp_path: Path,
) -> None:
    def chosen(suite: str, role: str, accurate: float) -> Path:
        path = tmp_path / f"{suite}.json"
        method = {"label": "Threshold", "method": "threshold", "role": role}
        taus = {"fast": 0.7, "accurate": accurate}
        each = {
            f"threshold-tuned-{goal}": {**method, "suites": {suite: {"tau": tau}}}
            for goal, tau in taus.items()
        }
        path.write_text(json.dumps({"methods": each}))
        return path

    words, programs = chosen("gsm8k", "fef", 0.7), chosen("mbpp", "control", 0.9)
    config = resolve(RunOptions(methods=f"{words}; {programs}; llada", suite="gsm8k,mbpp")).config
    both = config.methods["threshold-tuned-fast"]
    assert config.models[both.role] == {"gsm8k": "nano-fef", "mbpp": "nano-control"}
    accurate = config.methods["threshold-tuned-accurate"]  # on gsm8k the fast one again
    assert {suite: own.options["tau"] for suite, own in accurate.suites.items()} == {
        "gsm8k": 0.7,
        "mbpp": 0.9,
    }
    assert list(methods_named(str(words))) == ["threshold-tuned-fast"]
    again = tmp_path / "again.json"
    again.write_bytes(words.read_bytes())
    with pytest.raises(UserError, match="tuned twice for gsm8k"):
        methods_named(f"{words}; {again}")
    with pytest.raises(UserError, match="needs the role control"):
        resolve(
            RunOptions(
                methods=f"{words}; {programs}", suite="gsm8k,mbpp", model="base=nano,fef=nano-fef"
            )
        )


@pytest.mark.parametrize("element", ["{}:nobody", "{}:factor-tuned-fast(tau=1)", "{}.json"])
def test_what_a_choice_does_not_have_is_refused(element: str, tmp_path: Path) -> None:
    with pytest.raises(UserError):
        methods_named(element.format(written(tmp_path)))


def test_a_tuned_method_is_refused_on_a_suite_it_was_not_tuned_for(tmp_path: Path) -> None:
    (preset,) = methods_named(f"{written(tmp_path)}:threshold-tuned-fast").values()
    with pytest.raises(UserError, match="not tuned for mbpp"):
        setting_of(preset, "mbpp", {"gen_length": 64})


def test_a_block_model_is_tuned_with_its_own_decoders() -> None:
    assert {"llada", "threshold", "fef", "fef-literal"} < set(decoders_for(True)) & set(
        decoders_for(False)
    )
    assert set(decoders_for(True)) - set(decoders_for(False)) == {"editing", "s2d2", "linear"}
    assert set(decoders_for(False)) - set(decoders_for(True)) == {"wino", "flash"}


def own_settings(decoders: str, name: str, budget: int = 10) -> list[str]:
    return settings(name, SHORT, budget, 0, spaces=spaces_of(decoders))


def test_values_in_brackets_are_the_space_the_defaults_first_and_once() -> None:
    found = own_settings("threshold(tau=0.5|0.9|0.99, cache=dual)", "threshold")
    assert found[0] == "threshold(cache=dual,tau=0.9)"
    assert sorted(found[1:]) == ["threshold(cache=dual,tau=0.5)", "threshold(cache=dual,tau=0.99)"]
    assert (
        len(
            own_settings(
                "klass(conf_threshold=0.5|0.6|0.7, kl_threshold=0.1|0.2)", "klass", budget=4
            )
        )
        == 4
    )
    linear = spaces_of("linear(min_span=2|4)")
    assert (
        settings("linear", SHORT, 10, 0, BLOCK_MODEL, linear)[0]
        == "s2d2(acceptance=match,min_span=1)"
    )
    # its steps are made from the length
    assert own_settings("llada/2(steps=8|16)", "llada/2")[0] == "llada/2"
    assert own_settings("threshold+dual(tau=0.5)", "threshold-dual") == ["threshold+dual(tau=0.5)"]


@pytest.mark.parametrize(
    ("decoders", "says"),
    [
        ("treshold(tau=0.5|0.7)", "did you mean threshold"),
        (
            "threshold; threshold(tau=0.5)",
            r"names threshold twice; give all its values in one element",
        ),
        ("main", "main names 7 methods; name them one by one"),
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
    assert settings("mine", SHORT, 10, 0, spaces=spaces)[0] == f"{file}:mine(k=1)"
    dev = rows(("llada", "base", [150, 30], 10), ("mine", "base", [160, 30], 1))
    path = tmp_path / "tuned" / "choice.json"
    path.parent.mkdir()
    chosen = choice_of(choose(dev), SPACES | spaces, path.parent)
    path.write_text(json.dumps({"methods": chosen}))
    assert chosen["mine-tuned-fast"]["plugin"] == "../mine.py"
    (preset,) = methods_named(f"{path}:mine-tuned-fast").values()
    assert (preset.label, preset.decoder) == ("Mine, tuned (fast)", METHODS["mine"])


def test_a_choice_shows_options_that_are_fixed_and_which_settings_are_the_defaults() -> None:
    dev = rows(("llada", "base", [150, 30], 10), ("threshold", "base", [160, 30], 1))
    page = tune.described(choose(dev), tune.SPACES | spaces_of("threshold(tau=0.5); llada"), "")
    assert "| defaults |" in page and "| tau=1 |" in page


def test_a_length_that_is_not_the_usual_one_is_part_of_a_setting(tmp_path: Path) -> None:
    methods = {
        name: {
            "label": name,
            "method": name,
            "suites": {"gsm8k": {"gen_length": length, "block_length": 16, "options": {}}},
        }
        for name, length in (("llada", 48), ("threshold", 16))
    }
    config = {"methods": methods, "suites": {"gsm8k": {}}, "models": {"base": {"gsm8k": "nano"}}}
    run = save(tmp_path, [item(name, "gsm8k", 0) for name in methods], config=config)
    dev = dev_of(run, {name: name for name in methods}, {"gsm8k": 48})
    assert dev["settings"].to_list() == [
        {"gsm8k": {"block_length": 16}},
        {"gsm8k": {"gen_length": 16, "block_length": 16}},
    ]


LINE = ["--suite", "mbpp", "--budget", "2", "--limit", "2", "--first", "1", "--threads", "1"]


@pytest.mark.slow
@pytest.mark.usefixtures("registries")
def test_a_tuning_ends_with_a_choice_and_the_same_command_goes_on(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    decoders = f"threshold; {tmp_path}/mine.py:mine(k=5|6)"
    line = [*LINE, "--decoders", decoders, "--out", str(tmp_path / "tuned")]
    assert tune.main(line) == 0
    path = tmp_path / "tuned" / "choice.json"
    first = json.loads(path.read_text())
    assert {"llada-tuned-fast", "threshold-tuned-fast", "mine-tuned-fast"} <= set(
        methods_named(str(path))
    )
    # each with three checkpoints
    assert first["settings"] == {
        "llada": 6,
        "threshold": 6,
        "mine": 6,
    }
    page = (tmp_path / "tuned" / "choice.md").read_text()
    assert "\n| threshold | fast |" in page and "\nChosen on these: problems a suite: 2; " in page
    path.unlink()
    assert tune.main(line) == 0 and json.loads(path.read_text()) == first
