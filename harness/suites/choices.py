"""Questions with choices: shown as lettered lines, answered by a letter."""

import json
import re
from contextlib import suppress
from itertools import takewhile
from string import ascii_uppercase
from typing import Any

from harness.suites.texts import plain, text_of

Row = dict[str, Any]  # of a file of problems
COLUMNS = ("choices", "options")
REQUEST = "Answer with the letter of the right choice."
FORMS = "give a letter, an index from 0, or the text of one choice"


def choice_columns(row: Row) -> list[str]:
    """The columns of the choices: one with a list, or A, B, ... with a choice each; or none."""
    for name in COLUMNS:
        if name in row:
            return [name]
    if not {"A", "B"} <= row.keys():
        return []
    return list(takewhile(row.__contains__, ascii_uppercase))


def choices_of(row: Row, columns: list[str]) -> list[str]:
    """The texts of the choices of a question.

    Args:
        row: a question of a file.
        columns: as `choice_columns` has them.

    Raises:
        ValueError: the choices are no list, or fewer than two, or one of them is empty.
    """
    values: Any = [row.get(name) for name in columns]
    if len(columns) == 1:
        (values,) = values
    if isinstance(values, str):  # a cell of CSV
        with suppress(ValueError):
            values = json.loads(values, parse_int=str, parse_float=str)
    while values and columns[0] == "A" and values[-1] in (None, ""):
        values = values[:-1]
    if not _is_list_of_choices(values):
        wrong = f"{', '.join(columns)} must be a list of at least two choices"
        raise ValueError(f"{wrong}, not {str(values)[:40]}")
    return [text_of(value) for value in values]


def with_choices(question: str, choices: list[str]) -> str:
    """The prompt of a question: its text, a lettered line a choice, and what to answer with."""
    lettered = zip(ascii_uppercase, choices, strict=False)
    lines = [f"{letter}. {choice}" for letter, choice in lettered]
    return "\n".join([question, *lines, REQUEST])


def letter_of(answer: str, choices: list[str]) -> str:
    """The letter of the right choice.

    Args:
        answer: its letter, its index from 0, or its text.
        choices: the texts.

    Raises:
        ValueError: the answer is no choice, or may be two of them.
    """
    letters = list(ascii_uppercase[: len(choices)])
    texts = dict(zip(letters, choices, strict=True))
    readings = {letter for letter, text in texts.items() if plain(text) == plain(answer)}
    short = _bare(answer)
    if short in letters:
        readings.add(short)
    if short in map(str, range(len(letters))):
        readings.add(letters[int(short)])
    if len(readings) == 1:
        return readings.pop()
    wrong = f"may be {' or '.join(sorted(readings))}" if readings else "is none of the choices"
    raise ValueError(f"the answer {answer!r} {wrong}; {FORMS}")


def letter_in(response: str, choices: list[str]) -> str:
    """The letter that a response chooses, "" where it chooses none.

    The response is the text of a choice or a letter, or has a letter that stands alone: the first
    one after its last "answer", else the first one that is no English word.
    """
    letters = ascii_uppercase[: len(choices)]
    texts = [plain(choice) for choice in choices]
    if plain(response) in texts:
        return letters[texts.index(plain(response))]
    if _bare(response) in list(letters):
        return _bare(response)
    alone = rf"(?<![\w'])[{letters}](?![\w'])"
    _, answer, conclusion = response.rpartition("nswer")
    match = re.search(alone, conclusion) if answer else None
    match = match or re.search(rf"{alone}(?!(?<=[AI]) [a-z])", response)
    return match[0] if match else ""


def _bare(text: str) -> str:
    """A letter without brackets, dots and case."""
    return text.strip(" ().\n").upper()


def _is_list_of_choices(values: Any) -> bool:
    if not isinstance(values, list) or not 2 <= len(values) <= len(ascii_uppercase):
        return False
    return not any(value is None or value == "" for value in values)
