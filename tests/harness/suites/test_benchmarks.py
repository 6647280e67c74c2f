"""Public benchmarks under short names, on made-up problems in the formats of their files."""

import importlib.util
from pathlib import Path

import pytest
from made_up import ADD, write_benchmarks
from verdicts_only import evaluate

from harness.errors import UserError
from harness.records.store import read_run
from harness.run import main
from harness.sandbox.program import choose
from harness.suites.registry import suite_named

RIGHT = {
    "humaneval_plus": f"```python\n{ADD}    return a + b\n```",
    "mbpp_plus": "[BEGIN]\n 'def larger(a, b):\n    return max(a, b)' \n[DONE]",
    "ifeval": "Owls fly at night.",
    "gpqa": "ANSWER: {}",
    "aime2024": r"2 + 3 = \boxed{5}",
    "bbh": "Let me think. So the answer is (A).",
}
# Right by the tests of HumanEval and MBPP, and not by those of the larger sets.
WRONG = {
    "humaneval_plus": f"```python\n{ADD}    return abs(a) + abs(b)\n```",
    "mbpp_plus": "[BEGIN]\n 'def larger(a, b):\n    return max(a, b, 0)' \n[DONE]",
    "ifeval": "Owls, which fly.",
    "gpqa": "ANSWER: E",
    "aime2024": r"\boxed{6}",
    "bbh": "So the answer is (B).",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmarks")
    write_benchmarks(folder)
    return folder


@pytest.fixture
def langdetect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the package, which no made-up problem calls."""
    (tmp_path / "langdetect.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize("suite", RIGHT)
def test_a_right_response_passes_and_a_wrong_one_does_not(suite: str, data: Path) -> None:
    if suite_named(suite).executes and choose().sandbox is None:
        pytest.skip(choose().missing)
    config = suite_named(suite).datasets(False, data)[0]
    right = RIGHT[suite]
    if suite == "gpqa":
        from harness.runs.problems import load_problems

        (problems,) = load_problems(suite_named(suite), [config], 1)
        right = right.format(problems.golds[0])
    assert evaluate(config, [0, 1], [right, WRONG[suite]]) == [True, False]


@pytest.mark.parametrize(
    "suites",
    [
        "mbpp_plus,aime2024",
        pytest.param("humaneval_plus,ifeval,gpqa", marks=pytest.mark.slow),
        pytest.param("bbh", marks=pytest.mark.slow),  # 27 data sets with long prompts
    ],
)
def test_nano_answers_two_problems_of_each(
    suites: str, data: Path, tmp_path: Path, langdetect: None
) -> None:
    lengths = ["--gen-length", "8", "--block-length", "8"]
    line = ["--suite", suites, "--data", str(data), "--methods", "threshold", "--limit", "2"]
    assert main([*line, *lengths, "--untimed", "--out", str(tmp_path / "run")]) == 0
    run = read_run(tmp_path / "run")
    assert set(run.items["suite"]) == set(suites.split(","))
    unscored = run.meta.scoring["not_scored"]  # code, where no sandbox works
    assert run.items.loc[~run.items["suite"].isin(list(unscored)), "correct"].notna().all()
    assert set(unscored) <= {"humaneval_plus", "mbpp_plus"}


@pytest.mark.parametrize(
    ("suite", "package"),
    [
        ("ifeval", "langdetect"),
        ("opencompass:aime2024_gen", "math_verify"),
        ("opencompass:humaneval_plus_gen", "evalplus"),
        ("opencompass:mbpp_plus_gen", "evalplus"),
    ],
)
def test_a_judge_without_its_package_is_refused_before_decoding(
    suite: str,
    package: str,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = importlib.util.find_spec
    monkeypatch.setattr(
        "harness.runs.problems.find_spec", lambda name: None if name == package else installed(name)
    )
    humaneval = data / "data" / "humaneval" / "human-eval-v2-20210705.jsonl"
    humaneval.parent.mkdir(exist_ok=True)
    humaneval.write_text((data / "data/humaneval_plus/humaneval_plus.jsonl").read_text())
    line = ["--suite", suite, "--data", str(data), "--methods", "llada", "--limit", "1"]
    with pytest.raises(UserError, match=f"needs the package {package}: install it with pip, then"):
        main([*line, "--out", str(tmp_path / "run")])
    assert not (tmp_path / "run" / "items.jsonl").exists()


def test_programs_of_the_larger_sets_run_in_the_sandbox() -> None:
    """The package evalplus would run them in processes of its own."""
    for suite in ("humaneval_plus", "mbpp_plus"):
        assert suite_named(suite).runs_programs()
    for configuration in ("humaneval_plus_gen", "mbpp_plus_gen"):
        assert suite_named(f"opencompass:{configuration}").is_confined()


def test_mbpp_plus_without_its_tests_is_refused(data: Path, tmp_path: Path) -> None:
    from harness.runs.problems import load_problems

    path = tmp_path / "data" / "mbpp_plus" / "mbpp_plus.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"task_id": 1, "text": "a", "test_list": ["assert f() == 1"]}\n')
    suite = suite_named("mbpp_plus")
    with pytest.raises(UserError, match="has no column test"):
        load_problems(suite, suite.datasets(False, tmp_path), None)
