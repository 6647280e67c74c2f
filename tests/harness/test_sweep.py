"""A sweep: levels beside their base by hand, what is varied is named, and the command goes on where it stopped."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from run_records import item, save

from harness import sweep
from harness.errors import UserError
from harness.measures.sweeps import by_factor, swept
from harness.records.store import Run
from harness.stats import wilson
from harness.sweep import accuracies, beside

METHODS = {name: {"label": name.upper()} for name in ("llada", "threshold", "fef")}


def run_of(folder: Path, right: dict[str, int], *more: dict[str, int]) -> Run:
    """100 problems, of which a method solves the first ones; more: how many with each other seed."""
    draws = [right, *more]
    each = [(name, draw, at) for draw in range(len(draws)) for name in draws[draw] for at in range(100)]
    items = [item(name, "gsm8k", 100 * draw + at, correct=at < draws[draw][name]) for name, draw, at in each]
    seeds = {"seeds": list(range(len(draws)))} if more else {}
    files = {"files": {"gsm8k": {"items": 100 * len(draws)}}}
    models = {"base": {"gsm8k": "models/nano"}}
    config = {"methods": METHODS, "suites": {"gsm8k": {"title": "GSM8K"}}, "models": models, **seeds}
    return save(folder, items, config=config, data=files)


def test_levels_are_compared_with_the_base_by_hand(tmp_path: Path) -> None:
    base = run_of(tmp_path / "base", {"llada": 50, "threshold": 52, "fef": 80})
    levels = {
        ("seed", "1"): run_of(tmp_path / "seed", {"llada": 53, "threshold": 50, "fef": 80}),  # two alike swap
        ("gen_length", "96"): run_of(tmp_path / "length", {"llada": 50, "threshold": 52, "fef": 20}),  # fef falls
        ("dtype", "bfloat16"): run_of(tmp_path / "dtype", {"llada": 50, "threshold": 52, "fef": 80}),
    }
    rows = swept(base, levels).set_index("factor")
    assert rows["methods"].to_list() == [3, 3, 3] and rows["pairs"].to_list() == [2, 2, 2]
    assert rows["swapped"].to_dict() == {"seed": 1, "gen_length": 2, "dtype": 0}
    assert rows["swapped_shown"].to_dict() == {"seed": 0, "gen_length": 2, "dtype": 0}
    assert rows["kendall"].to_list() == pytest.approx([1 / 3, -1 / 3, 1])
    assert rows.loc["gen_length", ["change", "change_of"]].to_list() == [-60.0, "FEF"]
    assert rows.loc["gen_length", "change_low"] < -60 < rows.loc["gen_length", "change_high"] < 0
    assert by_factor(rows.reset_index())["factor"].to_list() == ["gen_length", "seed", "dtype"]


def test_the_table_has_accuracies_by_value_with_half_their_interval(tmp_path: Path) -> None:
    base, level = (run_of(tmp_path / str(count), {"llada": count, "fef": 80}) for count in (50, 60))
    numbers = accuracies({sweep.BASE: base, ("gen_length", "96"): level})
    assert numbers["accuracy"].to_list() == [50, 80, 60, 80]
    low, high = wilson(0.5, 100)
    assert numbers["spread"].iloc[0] == pytest.approx(50 * (high - low))
    table = beside(numbers, "gen_length", {"gen_length": "64"})
    assert table.loc["LLADA"].to_dict() == {"64": "50.0 ± 9.6", "96": "60.0 ± 9.4"}
    said = [sweep.heading(base, "gen_length")]
    assert said == ["Accuracy (%) by gen_length; ± is half of the 95% interval."]
    assert "| Method | gen_length=64 | gen_length=96 |" in sweep.markdown(said, table)
    latex = sweep.latex(said, table, ["a & b: tuned"])
    assert r"Accuracy (\%) by gen\_length" in latex and r"50.0 $\pm$ 9.6" in latex
    assert "\\footnotesize a \\& b: tuned\n" in latex


@pytest.mark.parametrize(
    ("data", "says"),
    [("generated-dev", "on gsm8k: 1 dev problem per suite, generated"), ("generated:7", "formats, drawn with seed 7.")],
)
def test_a_sweep_tells_dev_problems_and_their_seed(data: str, says: str, tmp_path: Path) -> None:
    config = {"methods": METHODS, "suites": {"gsm8k": {}}, "data": data}
    assert says in sweep.said(save(tmp_path, [item("fef", "gsm8k", 0)], config=config))[0]


def test_a_sweep_has_the_notes_of_tables_and_what_is_unlike_in_a_level(tmp_path: Path) -> None:
    def of(name: str, tuned_on: str, **config: Any) -> Run:
        own = {"gen_length": 64, "block_length": 64, "options": {}, "tuned_on": tuned_on}
        methods = {"llada": METHODS["llada"], "fef": METHODS["fef"] | {"suites": {"gsm8k": own}}}
        items = [item(method, "gsm8k", at) for method in methods for at in range(2)]
        suites = {"gsm8k": {"title": "GSM8K"}}
        return save(
            tmp_path / name, items, config={"methods": methods, "suites": suites, "data": "generated", **config}
        )

    base, plain = of("a", "generated"), of("b", "generated", prompt="plain")
    levels = [("prompt", "plain"), ("prompt", "chat")]
    numbers = accuracies(dict(zip([sweep.BASE, *levels], [base, plain, of("c", "")], strict=True)))
    (note,) = sweep.notes(numbers, [sweep.BASE, *levels])
    assert note == "base, prompt=plain: FEF: GSM8K: tuned on these problems."
    assert sweep.notes(numbers, levels[:1]) == ["FEF: GSM8K: tuned on these problems."]
    (line,) = sweep.unlike(base, {levels[0]: plain})
    assert line == "prompt=plain: Plain prompts, without a chat template."
    assert sweep.described(swept(base, {levels[0]: plain}), ["Said."], [note]).endswith(f"\n\nSaid.\n\n* {note}\n")


def test_with_several_seeds_the_spread_is_their_standard_deviation(tmp_path: Path) -> None:
    base = run_of(tmp_path, {"llada": 40}, {"llada": 50}, {"llada": 60})
    assert accuracies({sweep.BASE: base})[["accuracy", "spread"]].to_numpy().tolist() == [[50, 10]]
    assert sweep.heading(base, "x").endswith("± is the standard deviation over the seeds 0, 1, 2.")


def test_options_that_are_crossed_are_grouped_columns(tmp_path: Path) -> None:
    levels = sweep.levels_of(("gen_length=64|96", "prompt=chat|plain"), cross=True)
    assert levels["gen_length x prompt", "64 x plain"] == {"gen_length": 64, "prompt": "plain"} and len(levels) == 4
    run = run_of(tmp_path, {"llada": 50})
    table = beside(accuracies(dict.fromkeys([sweep.BASE, *levels], run)), "gen_length x prompt", {})
    assert table.columns.to_list() == [("64", "chat"), ("64", "plain"), ("96", "chat"), ("96", "plain")]
    assert "| gen_length=64, prompt=chat |" in sweep.markdown("", table)
    assert r"\multicolumn{2}{c}{64}" in sweep.latex("", table)


def test_a_method_that_a_value_lacks_has_a_dash_there(tmp_path: Path) -> None:
    base, level = run_of(tmp_path / "a", {"llada": 50, "fef": 80}), run_of(tmp_path / "b", {"llada": 50})
    assert beside(accuracies({sweep.BASE: base, ("model", "x"): level}), "model", {}).loc["FEF", "x"] == "-"


def test_another_configuration_of_a_suite_is_compared_problem_by_problem(tmp_path: Path) -> None:
    def asked(name: str, right: int, first: int = 0, *same: str) -> Run:
        """Ten items of a suite, and ten of each of the `same`, all right."""
        items = [item("fef", suite, at, gold=str(at), correct=True) for suite in same for at in range(10)]
        items += [item("fef", name, at, correct=at < right, gold=str(first + at)) for at in range(10)]
        suites = {suite: {} for suite in (*same, name)}
        return save(tmp_path / f"{name}{first}{len(same)}", items, config={"methods": METHODS, "suites": suites})

    base, levels = asked("gsm8k", 8), {("suite", "x"): asked("gsm8k-4shot", 5), ("suite", "y"): asked("math", 5, 99)}
    rows = swept(base, levels)
    beside = swept(asked("gsm8k", 8, 0, "math"), {("suite", "z"): asked("gsm8k-4shot", 5, 0, "math")})
    assert beside["change"].to_list() == [-15]  # of 20 problems: a suite of both runs is compared with itself
    assert rows["change"].to_list() == pytest.approx([-30, math.nan], nan_ok=True)
    assert "| -30.0 | FEF |" in sweep.described(rows) and "| other problems |" in sweep.described(rows)


def test_seeds_are_no_problems_of_their_own_in_a_change(tmp_path: Path) -> None:
    one, same = run_of(tmp_path / "a", {"fef": 50}), run_of(tmp_path / "b", {"fef": 60})
    six = [run_of(tmp_path / name, *[{"fef": count}] * 6) for name, count in (("c", 50), ("d", 60))]
    ends = ["change", "change_low", "change_high"]
    alone, drawn = (swept(base, {("x", "y"): level})[ends] for base, level in ((one, same), six))
    assert drawn.to_numpy().tolist()[0] == pytest.approx(alone.to_numpy().tolist()[0])


def test_a_change_to_another_number_of_seeds_is_that_of_the_means(tmp_path: Path) -> None:
    one, three = run_of(tmp_path / "one", {"fef": 50}), run_of(tmp_path / "three", *({"fef": n} for n in (20, 50, 80)))
    for base, level in ((one, three), (three, one)):
        assert swept(base, {("seed", "x"): level})[["change", "change_problems"]].to_numpy().tolist() == [[0, 100]]


def test_another_seed_of_a_problem_is_no_other_problem(tmp_path: Path) -> None:
    """Two problems with two seeds have the numbers 0 to 3, and three problems have others of the same numbers."""
    base, level = (
        save(
            tmp_path / str(count),
            [item("fef", "gsm8k", at, gold="1", correct=at % count == 0) for at in range(2 * count)],
            config={"methods": METHODS, "suites": {"gsm8k": {}}, "seeds": [0, 1]},
            data={"files": {"gsm8k": {"items": 2 * count}}},
        )
        for count in (2, 3)
    )
    assert swept(base, {("limit", "3"): level})["change"].to_list() == [0]


def test_a_method_that_a_level_lacks_is_left_out_of_it(tmp_path: Path) -> None:
    base = run_of(tmp_path / "base", {"llada": 50, "threshold": 52, "fef": 80})
    rows = swept(base, {("model", "x"): run_of(tmp_path / "model", {"llada": 50, "fef": 80})})
    assert rows["methods"].to_list() == [2] and rows["pairs"].to_list() == [1]


def test_a_level_without_a_method_of_the_base_is_not_called_other_problems(tmp_path: Path) -> None:
    base, other = run_of(tmp_path / "a", {"llada": 50}), run_of(tmp_path / "b", {"fef": 50})
    assert "| methods | fef | 0 | - | 0 | 0 | 0 | no method of both |" in sweep.described(
        swept(base, {("methods", "fef"): other})
    )


def answers(folder: Path, golds: str, **suite: Any) -> Run:
    """A problem for each character, its answer; a method that answers 2 to each."""
    items = [item("fef", "own", at, gold=gold, correct=gold == "2") for at, gold in enumerate(golds)]
    return save(folder, items, config={"methods": METHODS, "suites": {"own": suite}})


def test_other_answers_of_one_file_are_a_change_over_all_its_problems(tmp_path: Path) -> None:
    one = {"file": "q.csv", "sha256": "a", "prompt": "", "judge": "number"}
    base, level = (
        answers(tmp_path / golds, golds, questions=one | {"answer": column})
        for column, golds in (("a", "1222"), ("b", "1223"))
    )
    assert swept(base, {("suite", "b"): level})[["change", "change_problems"]].to_numpy().tolist() == [[-25, 4]]


def test_problems_of_which_an_answer_differs_are_others(tmp_path: Path) -> None:
    base, level = (answers(tmp_path / golds, golds) for golds in ("1222", "1223"))
    assert "| other problems |" in sweep.described(swept(base, {("data", "b"): level}))


def test_two_files_of_questions_are_not_compared_problem_by_problem(tmp_path: Path) -> None:
    def of(name: str, sha256: str) -> Run:
        items = [item("fef", name, at, gold="yes", correct=at < 5) for at in range(10)]
        named = {"file": f"{name}.jsonl", "sha256": sha256, "prompt": "", "answer": "answer", "judge": "exact"}
        return save(tmp_path / name, items, config={"methods": METHODS, "suites": {name: {"questions": named}}})

    levels = {("suite", "two"): of("two", "b"), ("suite", "same"): of("same", "a")}
    rows = swept(of("one", "a"), levels | {("suite", "one"): of("one", "b")})
    assert rows["change"].to_list() == pytest.approx([math.nan, 0, math.nan], nan_ok=True)


def test_generated_problems_of_other_seeds_are_not_compared_though_answers_agree(tmp_path: Path) -> None:
    def of(data: str) -> Run:
        items = [item("fef", "gsm8k", at, gold="1", correct=True) for at in range(10)]
        config = {"methods": METHODS, "suites": {"gsm8k": {}}, "data": data}
        return save(tmp_path / data.replace(":", "-"), items, config=config)

    rows = swept(of("generated"), {("data", "x"): of("generated:7"), ("data", "y"): of("generated")})
    assert rows["change"].to_list() == pytest.approx([math.nan, 0], nan_ok=True)


@pytest.mark.parametrize(
    ("vary", "says"),
    [
        (("gen_length",), r"write OPTION=VALUE\|VALUE"),
        (("gen_length=",), r"write OPTION=VALUE\|VALUE"),
        (("length=3",), "unknown option length; did you mean gen_length or block_length"),
        (("out=x",), "unknown option out"),
        (("temperature=0|0.0",), "--vary names temperature=0.0 twice"),
    ],
)
def test_what_is_no_level_is_refused(vary: tuple[str, ...], says: str) -> None:
    with pytest.raises(UserError, match=says):
        sweep.levels_of(vary)


@pytest.mark.parametrize(
    ("value", "says"), [("gen_length=0", "--gen-length 0 must be at least 1"), ("model=nowhere", "--data")]
)
def test_a_value_that_cannot_be_decoded_is_refused_before_the_base_is(tmp_path: Path, value: str, says: str) -> None:
    line = ["--suite", "gsm8k", "--limit", "1", "--vary", "stop_at_eos=true", "--vary", value, "--out", str(tmp_path)]
    with pytest.raises((UserError, ValueError), match=says):
        sweep.main(line)
    assert list(tmp_path.iterdir()) == []


def test_results_that_have_no_place_are_refused_before_anything_is_decoded(tmp_path: Path) -> None:
    (tmp_path / "sweep.csv").write_text("mine")
    with pytest.raises(UserError, match=r"sweep\.csv that no command of this project wrote"):
        sweep.main(["--suite", "gsm8k", "--limit", "1", "--vary", "stop_at_eos=true", "--out", str(tmp_path)])


def test_levels_are_read_as_options_are() -> None:
    levels = sweep.levels_of(("gen-length=48|96", "stop_at_eos=true", "model=nano-control"))
    assert list(levels) == [
        ("gen_length", "48"),
        ("gen_length", "96"),
        ("stop_at_eos", "true"),
        ("model", "nano-control"),
    ]
    changes = [{"gen_length": 48}, {"gen_length": 96}, {"stop_at_eos": True}, {"model": "nano-control"}]
    assert list(levels.values()) == changes


@pytest.mark.slow
def test_a_sweep_has_a_run_for_each_value_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["--methods", "llada,threshold", "--suite", "gsm8k", "--limit", "2", "--threads", "1"]
    line += ["--vary", "gen_length=32", "--vary", "stop_at_eos=true", "--out", str(tmp_path / "sweep")]
    assert sweep.main(line) == 0
    first = (tmp_path / "sweep" / "sweep.md").read_text()
    assert first in capsys.readouterr().out and "| stop_at_eos | true | 2 |" in first
    assert {path.name for path in (tmp_path / "sweep").iterdir() if path.is_dir()} == {
        *("base", "gen_length=32", "stop_at_eos=true")
    }
    assert len(pd.read_csv(tmp_path / "sweep" / "sweep.csv")) == 2
    assert (tmp_path / "sweep" / "sweep-table.md").read_text().count("| Method |") == 2
    assert sweep.main(line) == 0 and (tmp_path / "sweep" / "sweep.md").read_text() == first
    assert sweep.main([*line, "--cross"]) == 0 and (tmp_path / "sweep" / "gen_length=32,stop_at_eos=true").is_dir()
