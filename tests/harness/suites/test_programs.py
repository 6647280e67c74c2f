"""Questions with tests: read, refused where they test nothing, and run after a response."""

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from harness.errors import UserError
from harness.sandbox.evaluators import ProgramsEvaluator, confined_programs
from harness.sandbox.program import choose
from harness.suites.programs import code_in
from harness.suites.questions import TESTS, questions_of, read_questions
from harness.suites.registry import suites_named

SIGNATURE = 'def add(a, b):\n    """Add."""\n'
GOOD = {
    "prompt": "Write a function add(a, b).",
    "tests": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"],
}
CHECK = {"prompt": SIGNATURE, "tests": "def check(candidate):\n    assert candidate(1, 2) == 3"}
FENCED = "```python\ndef add(a, b):\n    return a + b\n```"


def written(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "q.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_tests_take_the_place_of_an_answer(tmp_path: Path, registries: None) -> None:
    path = written(tmp_path, GOOD, CHECK | {"entry_point": "add"})
    suite = suites_named(f"mine={path}")["mine"]
    assert suite.questions is not None and suite.questions.judge == TESTS and suite.runs_programs()
    tests = ["assert add(1, 2) == 3\nassert add(0, 0) == 0", f"{CHECK['tests']}\ncheck(add)"]
    assert [row["answer"] for row in read_questions(suite.questions)] == tests


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (CHECK, "line 1: tests assert and call nothing, so every program would pass"),
        (GOOD | {"tests": "add(1, 2) == 3"}, "line 1: tests assert and call nothing"),
        (GOOD | {"tests": "assert add("}, "line 1: tests are no Python"),
    ],
)
def test_tests_that_test_nothing_are_refused(
    tmp_path: Path, row: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        questions_of(f"mine={written(tmp_path, row)}")


@pytest.mark.parametrize(
    ("response", "entry_point", "code"),
    [
        ("x = 1", "", "x = 1"),
        ("Here:\n```python\nx = 1\n```\nand\n```\nx = 2\n```", "", "x = 1\n"),
        ("```py\nx = 1", "", "x = 1"),
        ("    return a + b", "add", f"{SIGNATURE}    return a + b"),
        ("def add(a, b): return a", "add", "def add(a, b): return a"),
    ],
)
def test_the_program_of_a_response(response: str, entry_point: str, code: str) -> None:
    assert code_in(response, SIGNATURE, entry_point) == code


def test_programs_are_run_with_their_tests(tmp_path: Path) -> None:
    sandbox = choose().sandbox
    if sandbox is None:
        pytest.skip("no sandbox works here")
    _, questions = questions_of(f"mine={written(tmp_path, GOOD, CHECK | {'entry_point': 'add'})}")
    rows = Dataset.from_list(read_questions(questions) * 2)
    responses = [FENCED, "    return a + b", "def add(a, b): return 1", "prose"]
    with confined_programs(sandbox, rows):
        score = ProgramsEvaluator().score(responses, rows["answer"], rows)
    assert [detail["correct"] for detail in score["details"]] == [True, True, False, False]
    assert score["details"][2]["result"].why == "assert add(1, 2) == 3" and score["accuracy"] == 50
