"""Questions with choices: read from lists and columns, shown as letters, judged by letters."""

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from harness.errors import UserError
from harness.sandbox.evaluators import ChoicesEvaluator
from harness.suites.choices import letter_in, letter_of
from harness.suites.questions import CHOICE, questions_of, read_questions

CITIES = ["Rome", "Paris", "Oslo"]
PROMPT = (
    "Capital of France?\nA. Rome\nB. Paris\nC. Oslo\nAnswer with the letter of the right choice."
)
GOOD = {"question": "Capital of France?", "choices": CITIES, "answer": "Paris"}


def rows_of(folder: Path, text: str, name: str = "q.jsonl") -> list[dict[str, Any]]:
    """The questions of a file with this text, whose judge is choice."""
    (folder / name).write_text(text)
    _, questions = questions_of(f"mine={folder / name}")
    assert questions.judge == CHOICE
    return read_questions(questions)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("q.jsonl", json.dumps(GOOD)),
        ("q.jsonl", json.dumps({"prompt": "Capital of France?", "options": CITIES, "label": 1})),
        ("q.csv", "question,A,B,C,D,answer\nCapital of France?,Rome,Paris,Oslo,,B\n"),
        (
            "q.csv",
            'question,choices,answer\nCapital of France?,"[""Rome"", ""Paris"", ""Oslo""]",1\n',
        ),
    ],
)
def test_choices_are_lettered_lines(tmp_path: Path, name: str, text: str) -> None:
    assert rows_of(tmp_path, text, name) == [{"answer": "B", "choices": CITIES, "prompt": PROMPT}]


@pytest.mark.parametrize(
    ("answer", "choices", "letter"),
    [
        ("b", CITIES, "B"),
        ("(C)", CITIES, "C"),
        ("0", CITIES, "A"),
        (" paris ", CITIES, "B"),
        ("7", ["6", "7"], "B"),
    ],
)
def test_an_answer_is_a_letter_an_index_or_a_text(
    answer: str, choices: list[str], letter: str
) -> None:
    assert letter_of(answer, choices) == letter


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"answer": "3"},
            "line 1: the answer '3' is none of the choices; give a letter, an index from 0, or",
        ),
        ({"choices": ["1", "0"], "answer": "1"}, "line 1: the answer '1' may be A or B"),
        (
            {"choices": "Rome, Paris"},
            "line 1: choices must be a list of at least two choices, not Rome, Paris",
        ),
        ({"choices": ["Rome", None]}, "line 1: choices must be a list of at least two"),
    ],
)
def test_a_question_needs_one_right_choice(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        rows_of(tmp_path, json.dumps(GOOD | change))


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("B", "B"),
        ("b.", "B"),
        ("(B) Paris", "B"),
        ("paris", "B"),
        ("A city in France, so B.", "B"),
        ("Answer: (B) Paris", "B"),
        ("A and C are wrong. The answer is **B**", "B"),
        (r"so \boxed{B}", "B"),
        ("It is B because A is in Italy.", "B"),
        ("Because D", ""),
    ],
)
def test_the_letter_of_a_response(response: str, letter: str) -> None:
    assert letter_in(response, CITIES) == letter


def test_responses_are_right_by_their_letters(tmp_path: Path) -> None:
    rows = Dataset.from_list(rows_of(tmp_path, f"{json.dumps(GOOD)}\n" * 3))
    score = ChoicesEvaluator().score(["B. Paris", "The answer is A.", ""], rows["answer"], rows)
    assert [detail["correct"] for detail in score["details"]] == [True, False, False]
    assert [detail["pred"] for detail in score["details"]] == ["B", "A", ""]
