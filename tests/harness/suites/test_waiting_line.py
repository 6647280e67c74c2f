"""Waiting lines and sentences: which responses are right."""

from __future__ import annotations

import json

import pytest

from harness.suites.splits import problems
from harness.suites.waiting_line import line_is_right, right_sentences, sentence_is_right

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
        ("shuffle", ["[ Ida, Ben, Eva ]", "[ Eva, Ida, Ben ]"], ["[ Ida, Ida, Ben ]", "[ Ida, Ben ]"]),
        (
            "insert",
            ["[ Leo, Ida, Ben, Eva ]", "[ Ida, Ben, Eva, Leo ]"],
            ["[ Ida, Ben, Eva ]", "[ Leo, Ben, Ida, Eva ]"],
        ),
        ("remove", ["[ Ben, Eva ]", "[ Ida, Ben ]"], ["[ Eva, Ben ]", "[ Ida, Ben, Eva ]"]),
        ("replace", ["[ Leo, Ben, Eva ]", "[ Ida, Ben, Leo ]"], ["[ Leo, Ben, Leo ]", "[ Ida, Ben, Eva ]"]),
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
def test_a_sentence_is_right_when_it_has_the_words_and_they_agree(sentence: str, right: bool) -> None:
    assert sentence_is_right(sentence, json.dumps(["old", "fox", "run", "park"])) is right


def test_every_right_sentence_is_another_one() -> None:
    sentences = right_sentences("big", "ant", "sing", "lake")
    assert len(set(sentences)) == len(sentences) == 2 * 6 * 4


@pytest.mark.parametrize(
    ("suite", "is_right"), [("line-fixed", line_is_right), ("line-free", line_is_right), ("words", sentence_is_right)]
)
def test_generated_responses_are_right(suite: str, is_right: object) -> None:
    drawn = list(problems(suite, "dev", 100))
    assert all(is_right(problem.response, problem.row["answer"]) for problem in drawn)  # type: ignore[operator]
