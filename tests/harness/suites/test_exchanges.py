"""Prompts and responses of a file: its formats and its bad lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.suites.exchanges import Exchange, read_exchanges
from harness.suites.spec import BOXED

GOOD = {"prompt": "Say hello.", "response": "hello"}


def lines_file(folder: Path, *rows: object) -> Path:
    path = folder / "train.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_prompts_and_responses_are_taken_as_they_are(tmp_path: Path) -> None:
    path = lines_file(tmp_path, GOOD, GOOD, "{never read")
    assert read_exchanges(path, "--data", "mbpp", 2) == [Exchange("Say hello.", "hello")] * 2


@pytest.mark.parametrize(
    ("suite", "line", "question", "answer"),
    [
        (
            "gsm8k",
            {"question": "How many?", "answer": "48/2 = <<48/2=24>>24 clips.\n#### 24"},
            "How many?",
            "48/2 = 24 clips.\n#### 24",  # without annotations
        ),
        ("math", {"problem": "Find $x$.", "solution": r"\boxed{1}", "level": "Level 1"}, "Find $x$.", r"\boxed{1}"),
    ],
)
def test_a_suites_own_lines_get_its_prompt(
    tmp_path: Path, suite: str, line: dict[str, str], question: str, answer: str
) -> None:
    assert read_exchanges(lines_file(tmp_path, line), "--data", suite, 1) == [Exchange(question + BOXED, answer)]


@pytest.mark.parametrize(
    "bad",
    [
        "{broken",
        "",
        "[]",
        "null",
        {"prompt": "only"},
        {"prompt": "x", "response": " "},
        {"prompt": "x", "response": 3},
        {"question": "x"},
        {"problem": "x", "solution": "of another suite"},
    ],
)
def test_a_bad_line_is_refused_by_its_number(tmp_path: Path, bad: object) -> None:
    with pytest.raises(UserError, match=r"train\.jsonl, line 2: ") as caught:
        read_exchanges(lines_file(tmp_path, GOOD, bad, GOOD), "--data", "gsm8k", 3)
    assert "\n" not in str(caught.value)


def test_what_a_line_must_hold_is_named(tmp_path: Path) -> None:
    path = lines_file(tmp_path, {})
    with pytest.raises(UserError, match='"prompt" and "response" or "question" and "answer"'):
        read_exchanges(path, "--data", "gsm8k", 1)


def test_a_file_with_too_few_lines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has 1 lines; at least 2 are needed"):
        read_exchanges(lines_file(tmp_path, GOOD), "--data", "gsm8k", 2)
    with pytest.raises(UserError, match="cannot be read"):
        read_exchanges(tmp_path, "--data", "gsm8k", 1)


def test_training_takes_every_line_of_any_known_format(tmp_path: Path) -> None:
    path = lines_file(tmp_path, GOOD, {"question": "a", "answer": "b"}, {"problem": "c", "solution": "d"})
    assert [exchange.response for exchange in read_exchanges(path, "--data")] == ["hello", "b", "d"]
