"""Parse lists of a command line whose elements can have arguments.

Such as `llada, fef(steps=3,window=12); mine=./q.jsonl(judge=number)`. Commas or semicolons outside
brackets separate elements. A value is a literal of Python or JSON, or bare text.
"""

import ast
import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import PurePath
from typing import Any

from harness.errors import UserError

OPENING_OF = {")": "(", "]": "[", "}": "{"}  # closing bracket -> its opening bracket
WORDS = {"true": True, "false": False, "null": None, "None": None}
BARE = re.compile(r"[A-Za-z0-9_./+-]+")  # a text that needs no quotes
QUOTED = re.compile(r"""(["'])(?:\\.|(?!\1).)*\1""", re.DOTALL)
LITERAL_ERRORS = (ValueError, SyntaxError, TypeError)


def elements_of(text: str, separators: str = ",;", quotes: bool = False) -> list[str]:
    """Split the text of a list at the separators outside brackets.

    Args:
        text: the list, such as "a, b(c=1,d=2)".
        separators: the characters that separate elements.
        quotes: whether quotes outside brackets are read as quotes, so that separators in them do
            not count; inside brackets quotes always are.

    Returns:
        The elements, stripped, without empty ones.

    Raises:
        UserError: a bracket or a quote is not closed, or a closing bracket closes nothing.
    """
    parts = []
    start = 0
    for position, character, depth in _characters(text, quotes):
        if character in separators and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def alternatives(text: str) -> list[str]:
    """All elements that an element with values separated by "|" stands for.

    "a(b=1|2)" is "a(b=1)" and "a(b=2)"; with several such arguments every combination is one.

    Raises:
        UserError: as `elements_of`.
    """
    start = _start_of_arguments(text)
    if start is None:
        return [text]
    choices = []
    for part in elements_of(text[start + 1 : -1], ",", quotes=True):
        name, equals, values = part.partition("=")
        # A part without any value stays as it is: `parse_call` says what is wrong with it.
        choices.append(
            [f"{name}{equals}{value}" for value in elements_of(values, "|", quotes=True)] or [part]
        )
    return [f"{text[:start]}({','.join(chosen)})" for chosen in product(*choices)]


def expanded(text: str) -> list[str]:
    """The elements of a list, with the `alternatives` of each."""
    return [alternative for element in elements_of(text) for alternative in alternatives(element)]


def parse_call(text: str) -> tuple[str, dict[str, Any]]:
    """An element's head and arguments: ("a", {"b": 1, "c": "x"}) for "a(b=1, c=x)".

    Raises:
        UserError: an argument that is no name=value, or that is there twice.
    """
    start = _start_of_arguments(text)
    if start is None:
        return text.strip(), {}
    arguments: dict[str, Any] = {}
    for part in elements_of(text[start + 1 : -1], ",", quotes=True):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name.isidentifier() or not value or name in arguments:
            wrong = f"{name} is there twice" if name in arguments else f"{part!r} is no argument"
            raise UserError(f"{text}: {wrong}; write name=value, separated by commas")
        arguments[name] = parse_value(value)
    return text[:start].strip(), arguments


def parse_value(text: str) -> Any:
    """The value that a text stands for: a number, a boolean, None, quoted text or a list; any other
    text is itself."""
    if text in WORDS:
        return WORDS[text]
    try:
        value = ast.literal_eval(text)
    except LITERAL_ERRORS:
        return text
    # Other literals of Python, such as tuples and dicts, stay text: no option takes them.
    return value if isinstance(value, int | float | str | list) else text


def format_call(head: str, arguments: dict[str, Any]) -> str:
    """The canonical text of an element, with its arguments sorted by name.

    `parse_call` reads it back, a path as text and a tuple as a list.
    """
    return f"{head}({','.join(_formatted(arguments))})" if arguments else head


def format_label(arguments: dict[str, Any]) -> str:
    """Arguments as text for a label, "a=1, b=x", sorted by name; of a path only the file's name."""
    values = {
        name: value.name if isinstance(value, PurePath) else value
        for name, value in arguments.items()
    }
    return ", ".join(_formatted(values))


def _formatted(arguments: dict[str, Any]) -> Iterator[str]:
    for name, value in sorted(arguments.items()):
        if value is None or isinstance(value, bool):
            text = json.dumps(value)
        elif isinstance(value, int | float):
            text = repr(value)
        elif isinstance(value, list | tuple):
            text = f"[{','.join(map(repr, value))}]"
        else:
            text = str(value)
            # Quoted if it would be read back as something else, such as a text "1" as a number.
            if not BARE.fullmatch(text) or parse_value(text) != text:
                text = json.dumps(text, ensure_ascii=False)
        yield f"{name}={text}"


def _characters(text: str, quotes: bool) -> Iterator[tuple[int, str, int]]:
    """Every character outside quotes, as (position, character, number of brackets around it)."""
    opened = ""
    position = 0
    while position < len(text):
        character = text[position]
        # Outside brackets an apostrophe may be part of a path.
        if character in "\"'" and (quotes or opened):
            quoted = QUOTED.match(text, position)
            if quoted is None:
                raise UserError(f"{text}: a {character} is not closed")
            position = quoted.end()
            continue
        # A bracket, opening or closing, counts as outside of itself.
        if character in OPENING_OF:
            if not opened.endswith(OPENING_OF[character]):
                raise UserError(f"{text}: a {character} closes nothing")
            opened = opened[:-1]
        yield position, character, len(opened)
        if character in OPENING_OF.values():
            opened += character
        position += 1
    if opened:
        raise UserError(f"{text}: a {opened[-1]} is not closed")


def _start_of_arguments(text: str) -> int | None:
    """The index of the "(" that opens the arguments; None if the text does not end with ")"."""
    # A path may have brackets of its own, so that the last pair counts, and only at the end.
    start = None
    for position, character, depth in _characters(text, quotes=False):
        if depth == 0 and character == "(":
            start = position
        if depth == 0 and character == ")" and position == len(text) - 1:
            return start
    return None
