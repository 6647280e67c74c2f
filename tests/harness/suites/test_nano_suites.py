"""Generated problems: right, diverse, the same for the same seed, and never in two splits."""

import json
from functools import cache
from pathlib import Path
from random import Random

import pytest
from generated import write_suites

from harness.suites import lists, mbpp
from harness.suites.lists import LIST_TASKS, line_is_right, read_list, sentence_is_right, write_list
from harness.suites.registry import (
    GENERATED,
    SHOTS,
    TEST_PROBLEMS,
    drawn,
    problems,
    split_named,
    suite_named,
)
from harness.suites.spec import Problem, split_of
from model_wrappers import load_backbone

# of the problems of the suites before
SHOT = [name for name in GENERATED if name.endswith("-4shot")]
OWN = [name for name in GENERATED if name not in SHOT]
# Those whose problems take seconds to make.
LARGE = ("code-hard", "code-long")


@cache
def all_of(suite: str, split: str) -> list[Problem]:
    """As many problems as a suite has by default."""
    return list(problems(suite, split, TEST_PROBLEMS))


@pytest.mark.parametrize("suite", GENERATED)
def test_problems_are_the_same_for_the_same_arguments(suite: str) -> None:
    assert list(problems(suite, "dev", 20)) == list(problems(suite, "dev", 20))
    assert list(problems(suite, "dev", 20)) != list(problems(suite, "dev", 20, seed=1))


@pytest.mark.parametrize(
    "suite",
    [pytest.param(suite, marks=[pytest.mark.slow] if suite in LARGE else []) for suite in OWN],
)
def test_splits_never_share_what_is_asked(suite: str) -> None:
    keys = {
        split: {problem.key for problem in all_of(suite, split)}
        for split in ("train", "dev", "test")
    }
    assert (
        not keys["train"] & keys["test"]
        and not keys["train"] & keys["dev"]
        and not keys["dev"] & keys["test"]
    )


@pytest.mark.parametrize("suite", ["gsm8k", "math", "humaneval", "mbpp"])
def test_one_problem_has_many_responses(suite: str) -> None:
    rng = Random(0)
    wordings: dict[str, set[str]] = {}
    for _ in range(4000):
        problem = suite_named(suite).generated.draw(rng)
        # Of a program the body alone: its first line holds the names that the prompt gave.
        body = problem.response.partition("\n")[2] or problem.response
        wordings.setdefault(
            problem.key if suite in ("humaneval", "mbpp") else problem.question, set()
        ).add(body)
    assert max(map(len, wordings.values())) > 1


@pytest.mark.parametrize("suite", ["humaneval", "mbpp", "code-long", "code-hard"])
def test_reference_programs_pass_their_own_tests(suite: str) -> None:
    for problem in problems(suite, "dev", 100):
        scope: dict[str, object] = {}
        tests = (
            problem.row["test"] + f"check({problem.row['entry_point']})"
            if suite == "humaneval"
            else None
        )
        exec(problem.response + "\n" + (tests or "\n".join(problem.row["test_list"])), scope)


def test_the_last_number_of_a_word_problem_is_its_answer() -> None:
    for problem in problems("gsm8k", "dev", 100):
        gold = problem.row["answer"].split("#### ")[1]
        assert (
            problem.response.rstrip(".").split()[-1] == gold
            or f" {gold} " in problem.response.rsplit("So", 1)[-1]
        )


@pytest.mark.parametrize(
    ("suite", "least", "most", "amount"), [("gsm8k-long", 6, 10, 12), ("gsm8k-hard", 9, 12, 30)]
)
def test_a_long_word_problem_takes_so_many_right_equations(
    suite: str, least: int, most: int, amount: int
) -> None:
    for problem in problems(suite, "dev", 100):
        solution, gold = problem.row["answer"].split("\n#### ")
        equations = [equation.split(" = ") for equation in solution.split(", ")]
        assert least <= len(equations) <= most
        assert all(eval(left) == int(right) <= amount for left, right in equations)
        assert equations[-1][1] == gold and all(
            " = ".join(each) in problem.response for each in equations
        )


@pytest.mark.parametrize("suite", OWN)
def test_a_response_fits_into_the_suites_length(suite: str) -> None:
    tokenizer = load_backbone("nano").text_tokenizer()
    for problem in all_of(suite, "test"):
        # EoT closes it
        assert len(tokenizer(problem.response).input_ids) < suite_named(suite).generated.length


@pytest.mark.parametrize("suite", SHOT)
def test_solved_problems_come_from_training_and_precede_the_same_problems(suite: str) -> None:
    generator = suite_named(suite).generated
    assert generator.problems_of is not None
    assert list(problems(suite, "test", 20)) == list(problems(generator.problems_of, "test", 20))
    roles = [turn["role"] for turn in generator.rounds]
    assert roles == ["HUMAN", "BOT"] * SHOTS + ["HUMAN"]
    asked = {
        each.question for split in ("dev", "test") for each in all_of(generator.problems_of, split)
    }
    assert not asked & {turn["prompt"] for turn in generator.shots}


def test_lists_have_three_to_five_different_words_and_all_tasks() -> None:
    rng = Random(0)
    drawn = [lists.draw(rng) for _ in range(300)]
    assert {p.row["task"] for p in drawn} == set(LIST_TASKS)
    assert all(len(set(p.row["items"])) == len(p.row["items"]) in (3, 4, 5) for p in drawn)


def test_written_lists_are_read_back() -> None:
    assert read_list(f"here: {write_list(['ant', 'owl'])}!") == ["ant", "owl"]
    assert read_list("no list") is None


def test_written_suites_hold_the_split_in_the_real_layout(tmp_path: Path) -> None:
    write_suites(tmp_path, "test", 12)
    for suite in GENERATED:
        text = suite_named(suite).files(True, tmp_path)[0].read_text()
        content = suite_named(suite).generated.content
        one_object = content is suite_named("math").generated.content
        rows = (
            list(json.loads(text).values())
            if one_object
            else [json.loads(line) for line in text.splitlines()]
        )
        rows = rows[mbpp.FIRST_TEST_ROW :] if content is mbpp.as_test_rows else rows
        expected = list(problems(suite, "test", 12))
        assert len(rows) == 12 and all(split_of(p) == "test" for p in expected)
        assert all(p.row.items() <= row.items() for p, row in zip(expected, rows, strict=True))


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ("generated", ("test", 0)),
        ("generated-dev", ("dev", 0)),
        ("generated:7", ("test", 7)),
        ("generated-dev:12", ("dev", 12)),
        ("generated:", None),
        ("generated:-1", None),
        ("./generated", None),
        (None, None),
    ],
)
def test_data_names_a_split_and_a_seed(data: str | None, named: tuple[str, int] | None) -> None:
    assert split_named(data) == named


def test_another_seed_draws_other_problems_of_the_same_split() -> None:
    first, second = (
        {each.question for each in drawn(suite_named("code-long"), data, None)}
        for data in ("generated", "generated:1")
    )
    assert not first & second


def test_a_split_with_fewer_problems_than_the_limit_gives_all_of_them() -> None:
    asked = [problem.question for problem in drawn(suite_named("math"), "generated:3", 400)]
    assert TEST_PROBLEMS < len(asked) == len(set(asked)) < 400


# Waiting lines and sentences: which responses are right


LINE = ["Ida", "Ben", "Eva"]


@pytest.mark.parametrize(
    ("task", "right", "wrong"),
    [
        ("copy", ["[ Ida, Ben, Eva ]"], ["[ Ida, Ben ]", "Ida, Ben, Eva", ""]),
        ("reverse", ["[ Eva, Ben, Ida ]"], ["[ Ida, Ben, Eva ]"]),
        ("sort", ["[ Ben, Eva, Ida ]"], ["[ Ben, Ida, Eva ]"]),
        ("insert at", ["[ Ida, Leo, Ben, Eva ]"], ["[ Leo, Ida, Ben, Eva ]", "[ Ida, Leo, Eva ]"]),
        ("remove at", ["[ Ida, Eva ]"], ["[ Ida, Ben ]"]),
        ("replace at", ["[ Ida, Leo, Eva ]"], ["[ Leo, Ben, Eva ]"]),
        (
            "shuffle",
            ["[ Ida, Ben, Eva ]", "[ Eva, Ida, Ben ]"],
            ["[ Ida, Ida, Ben ]", "[ Ida, Ben ]"],
        ),
        (
            "insert",
            ["[ Leo, Ida, Ben, Eva ]", "[ Ida, Ben, Eva, Leo ]"],
            ["[ Ida, Ben, Eva ]", "[ Leo, Ben, Ida, Eva ]"],
        ),
        ("remove", ["[ Ben, Eva ]", "[ Ida, Ben ]"], ["[ Eva, Ben ]", "[ Ida, Ben, Eva ]"]),
        (
            "replace",
            ["[ Leo, Ben, Eva ]", "[ Ida, Ben, Leo ]"],
            ["[ Leo, Ben, Leo ]", "[ Ida, Ben, Eva ]"],
        ),
    ],
)
def test_a_line_is_right_by_what_was_asked(task: str, right: list[str], wrong: list[str]) -> None:
    answer = json.dumps({"task": task, "line": LINE, "new": "Leo", "place": 1})
    assert all(line_is_right(response, answer) for response in right)
    assert not any(line_is_right(response, answer) for response in wrong)


@pytest.mark.parametrize(
    ("sentence", "right"),
    [
        ("The old fox runs in the park.", True),
        ("In a park two old foxes run.", True),
        ("An old fox runs by a park.", True),
        ("A old fox runs in the park.", False),
        ("Two old fox run in the park.", False),
        ("The old foxes runs in the park.", False),
        ("The fox runs in the park.", False),
        ("in the park the old fox runs.", False),
    ],
)
def test_a_sentence_is_right_when_it_has_the_words_and_they_agree(
    sentence: str, right: bool
) -> None:
    assert sentence_is_right(sentence, json.dumps(["old", "fox", "run", "park"])) is right


@pytest.mark.parametrize(
    ("suite", "is_right"),
    [("line-fixed", line_is_right), ("line-free", line_is_right), ("words", sentence_is_right)],
)
def test_generated_responses_are_right(suite: str, is_right: object) -> None:
    drawn = list(problems(suite, "dev", 100))
    assert all(is_right(problem.response, problem.row["answer"]) for problem in drawn)  # type: ignore[operator]
