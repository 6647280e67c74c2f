"""Lists on a command line whose elements have arguments: `llada, fef(steps=3,window=12);
mine=./q.jsonl(judge=number)`.

Commas or semicolons outside brackets separate elements. A value is a literal of Python or JSON, or
bare text. A function of a Python file that an element names is imported here.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path, PurePath
from typing import Any

from harness.errors import UserError, explained
from model_wrappers.decoders.files import import_file

PAIRS = {")": "(", "]": "[", "}": "{"}
WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
BARE = re.compile(r"[A-Za-z0-9_./+-]+")  # text that needs no quotes
QUOTED = re.compile(r"""(["'])(?:\\.|(?!\1).)*\1""", re.DOTALL)
LITERAL_ERRORS = (ValueError, SyntaxError, TypeError)


def elements_of(text: str, separators: str = ",;", quotes: bool = False) -> list[str]:
    """The elements of a list, without empty ones; `quotes`: what is in quotes is not cut.

    Raises UserError for brackets or quotes that do not match.
    """
    parts = []
    begun = 0
    for at, sign, depth in _signs(text, quotes):
        if sign in separators and depth == 0:
            parts.append(text[begun:at])
            begun = at + 1
    return [part.strip() for part in [*parts, text[begun:]] if part.strip()]


def alternatives(text: str) -> list[str]:
    """An element with one value for each argument, for all that are given: "a(b=1|2)" is "a(b=1)"
    and "a(b=2)".

    Raises UserError as `elements_of` does.
    """
    start = _start_of_arguments(text)
    if start is None:
        return [text]
    choices = []
    for part in elements_of(text[start + 1 : -1], ",", quotes=True):
        name, equals, values = part.partition("=")
        choices.append(
            [f"{name}{equals}{value}" for value in elements_of(values, "|", quotes=True)] or [part]
        )
    return [f"{text[:start]}({','.join(chosen)})" for chosen in product(*choices)]


def expanded(text: str) -> list[str]:
    """The elements of a list, those with several values as one for each."""
    return [alternative for element in elements_of(text) for alternative in alternatives(element)]


def parse_call(text: str) -> tuple[str, dict[str, Any]]:
    """An element's head and its arguments: "a(b=1, c=x)" is ("a", {"b": 1, "c": "x"}), "a" is ("a",
    {}).

    Raises UserError for an argument that is no name=value, and for one that is there twice.
    """
    start = _start_of_arguments(text)
    if start is None:
        return text.strip(), {}
    arguments: dict[str, Any] = {}
    for part in elements_of(text[start + 1 : -1], ",", quotes=True):
        name, equals, value = (each.strip() for each in part.partition("="))
        if not equals or not name.isidentifier() or not value or name in arguments:
            wrong = f"{name} is there twice" if name in arguments else f"{part!r} is no argument"
            raise UserError(f"{text}: {wrong}; write name=value, separated by commas")
        arguments[name] = parse_value(value)
    return text[:start].strip(), arguments


def parse_value(text: str) -> Any:
    """The value that a text stands for: a number, a truth, nothing, quoted text, a list; else the
    text as it is."""
    if text in WORDS:
        return WORDS[text]
    try:
        value = ast.literal_eval(text)
    except LITERAL_ERRORS:
        return text
    return value if isinstance(value, int | float | str | list) else text


def format_call(head: str, arguments: dict[str, Any]) -> str:
    """The canonical text of an element, which `parse_call` reads again: its arguments in the order
    of their names."""
    return f"{head}({','.join(_formatted(arguments))})" if arguments else head


def format_label(arguments: dict[str, Any]) -> str:
    """Arguments as a label has them: of a path its last part alone."""
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
            if not BARE.fullmatch(text) or parse_value(text) != text:
                text = json.dumps(text, ensure_ascii=False)
        yield f"{name}={text}"


def _signs(text: str, quotes: bool) -> Iterator[tuple[int, str, int]]:
    """Every sign outside quotes with its place and the number of brackets around it; a bracket is
    outside itself.

    Quotes count within brackets, outside them only with `quotes`: a path may have them.
    """
    opened = ""
    at = 0
    while at < len(text):
        sign = text[at]
        if sign in "\"'" and (quotes or opened):
            quoted = QUOTED.match(text, at)
            if quoted is None:
                raise UserError(f"{text}: a {sign} is not closed")
            at = quoted.end()
            continue
        if sign in PAIRS:
            if not opened.endswith(PAIRS[sign]):
                raise UserError(f"{text}: a {sign} closes nothing")
            opened = opened[:-1]
        yield at, sign, len(opened)
        if sign in PAIRS.values():
            opened += sign
        at += 1
    if opened:
        raise UserError(f"{text}: a {opened[-1]} is not closed")


def _start_of_arguments(text: str) -> int | None:
    """Where the brackets begin that an element ends with; None if it ends otherwise."""
    start = None
    for at, sign, depth in _signs(text, quotes=False):
        if depth == 0 and sign == "(":
            start = at
        if depth == 0 and sign == ")" and at == len(text) - 1:
            return start
    return None


def import_function(path: Path, name: str) -> Callable[..., Any]:
    """A function of a file. Raises UserError for one that is not there or cannot be imported."""
    with explained(f"{path}:{name} cannot be imported", BaseException):
        function: Callable[..., Any] = getattr(import_file(path), name)
        return function
