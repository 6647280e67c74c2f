"""Multiple-choice questions: choices are lettered lines, and a letter is the answer."""

import json
import re
from contextlib import suppress
from itertools import takewhile
from string import ascii_uppercase
from typing import Any

from harness.suites.texts import plain, text_of

# A row of a file of problems.
Row = dict[str, Any]
COLUMNS = ("choices", "options")
REQUEST = "Answer with the letter of the right choice."
FORMS = "give a letter, an index from 0, or the text of one choice"


def choice_columns(row: Row) -> list[str]:
    """The columns of the choices: one with a list, or A, B, ... with one choice each; [] if a row
    has no choices."""
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
        columns: of `choice_columns`.

    Raises:
        ValueError: the choices are no list, or fewer than two, or one of them is empty.
    """
    values: Any = [row.get(name) for name in columns]
    if len(columns) == 1:
        (values,) = values
    # A cell of CSV holds the list as text. Numbers stay as they are written, such as 0.10.
    if isinstance(values, str):
        with suppress(ValueError):
            values = json.loads(values, parse_int=str, parse_float=str)
    # With a column per choice, shorter questions leave the last columns empty.
    while values and columns[0] == "A" and values[-1] in (None, ""):
        values = values[:-1]
    if not _is_list_of_choices(values):
        rule = f"{', '.join(columns)} must be a list of at least two choices"
        raise ValueError(f"{rule}, not {str(values)[:40]}")
    return [text_of(value) for value in values]


def with_choices(question: str, choices: list[str]) -> str:
    """The prompt of a question: its text, a lettered line for each choice, and the request for a
    letter."""
    lettered = zip(ascii_uppercase, choices, strict=False)
    lines = [f"{letter}. {choice}" for letter, choice in lettered]
    return "\n".join([question, *lines, REQUEST])


def letter_of(answer: str, choices: list[str]) -> str:
    """The letter of the right choice.

    Args:
        answer: its letter, its index from 0, or its text.
        choices: the texts of the choices.

    Raises:
        ValueError: the answer is no choice, or is ambiguous.
    """
    letters = list(ascii_uppercase[: len(choices)])
    texts = dict(zip(letters, choices, strict=True))
    # All readings are collected: where choices are numbers, "1" may be an index and a text.
    readings = {letter for letter, text in texts.items() if plain(text) == plain(answer)}
    short = _bare(answer)
    if short in letters:
        readings.add(short)
    if short in map(str, range(len(letters))):
        readings.add(letters[int(short)])
    if len(readings) == 1:
        return readings.pop()
    fault = f"may be {' or '.join(sorted(readings))}" if readings else "is none of the choices"
    raise ValueError(f"the answer {answer!r} {fault}; {FORMS}")


def letter_in(response: str, choices: list[str]) -> str:
    """The letter that a response chooses; "" if it chooses none.

    The whole response may be a letter or the text of a choice. Otherwise the first letter that
    stands alone after the last "answer" counts, or else the first one that stands alone and is not
    the English word "A" or "I".
    """
    letters = ascii_uppercase[: len(choices)]
    texts = [plain(choice) for choice in choices]
    if plain(response) in texts:
        return letters[texts.index(plain(response))]
    if _bare(response) in list(letters):
        return _bare(response)
    alone = rf"(?<![\w'])[{letters}](?![\w'])"
    # Without the first letter, which may be a capital.
    _, answer, conclusion = response.rpartition("nswer")
    match = re.search(alone, conclusion) if answer else None
    # "A" or "I" is a word if a lower-case word follows it.
    match = match or re.search(rf"{alone}(?!(?<=[AI]) [a-z])", response)
    return match[0] if match else ""


def _bare(text: str) -> str:
    """A text without brackets and dots around it, in capitals."""
    return text.strip(" ().\n").upper()


def _is_list_of_choices(values: Any) -> bool:
    if not isinstance(values, list) or not 2 <= len(values) <= len(ascii_uppercase):
        return False
    return not any(value is None or value == "" for value in values)
