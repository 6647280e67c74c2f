"""Command lines made from structs: every command has one, whose fields are its options."""

import argparse
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import field, fields
from pathlib import Path, PurePath
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NoReturn,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from harness.errors import UserError
from model_wrappers.options import describe_type, meant, path_from

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

UNSAFE_HELP = "where no sandbox works, run model-written code unprotected instead of not scoring it"
T = TypeVar("T", bound="DataclassInstance")


def command_name() -> str:
    """The command fef-dllm as it can be typed here: its name, or where it lies."""
    if shutil.which("fef-dllm"):
        return "fef-dllm"
    return os.path.relpath(Path(sys.executable).with_name("fef-dllm"))


def option(
    help: str | None,
    default: Any = None,
    least: float | None = None,
    most: float | None = None,
    positional: bool | None = None,
    group: str = "",
    **argument: Any,
) -> Any:
    """A field with its help, default and range. positional: without a flag, as those with `nargs`
    are if nothing is said. group: in --help, of this field and those after it that name none."""
    positional = "nargs" in argument if positional is None else positional
    metadata = {
        "least": least,
        "most": most,
        "positional": positional,
        "group": group,
        "argument": {"help": help, **argument},
    }
    return field(default=default, metadata=metadata)


def checked(kind: type[T], values: Mapping[str, Any]) -> T:
    """Options of this kind with these values, by field name, and `named`, the names; None and False
    are no value.

    Raises UserError for an unknown name, and for a value of a wrong type or out of its range.
    """
    known = {each.name: each for each in fields(kind)}
    hints = get_type_hints(kind)
    converted = {}
    for name, value in values.items():
        if name not in known:
            raise UserError(f"unknown option {name}{meant(name, known)}")
        if value is None or value is False:
            continue
        value = _plain(value)
        if get_origin(hints[name]) is tuple and isinstance(value, str):
            value = (value,)
        flag = _flag(name)
        converted[name] = _converted(value, hints[name], flag)
        _check_range(converted[name], known[name].metadata, f"{flag} {value}")
    made = kind(**converted)
    # a usual value that was given is not one that was left out
    vars(made)["named"] = frozenset(converted)
    return made


def _converted(value: Any, hint: Any, flag: str) -> Any:
    """A value as its option's type has it. Raises UserError for one of another type."""
    try:
        return msgspec.convert(value, hint, dec_hook=path_from)
    except msgspec.ValidationError as error:
        # no text stands for it
        wanted = describe_type(msgspec.inspect.type_info(hint)).removesuffix(" or None")
        raise UserError(f"{flag} {value!r} must be {wanted}") from error


def _check_range(value: Any, metadata: Mapping[str, Any], shown: str) -> None:
    """Raise UserError for a value out of its option's range."""
    least = metadata["least"]
    most = metadata["most"]
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{shown} must be a finite number")
    if least is not None and value < least:
        raise UserError(f"{shown} must be at least {least}")
    if most is not None and value > most:
        raise UserError(f"{shown} must be at most {most}")


def parsed(kind: type[T], line: list[str] | None, description: str | None = None) -> T:
    """Options of this kind from a command line, of the process if `line` is None. description: for
    --help.

    Raises UserError as `checked` does, and for text that is no option; --help ends the process.
    """
    program = Path(sys.argv[0])
    parser = _Parser(
        prog=f"python -m harness.{program.parent.name}" if program.name == "__main__.py" else None,
        description=description,
        formatter_class=_Help,
        argument_default=argparse.SUPPRESS,
    )
    hints = get_type_hints(kind)
    group: argparse._ActionsContainer = parser
    for each in fields(kind):
        metadata = each.metadata
        if metadata["group"]:
            group = parser.add_argument_group(metadata["group"])
        argument = _argument(hints[each.name]) | metadata["argument"]
        if metadata["positional"]:
            parser.add_argument(each.name, **argument)
        else:
            group.add_argument(_flag(each.name), **argument)
    values, unknown = parser.parse_known_args(line)
    if unknown:
        name = unknown[0].partition("=")[0]
        if not name.startswith("-"):
            raise UserError(f"{name} is one argument too many; --help has all options")
        raise UserError(
            f"unknown option {name}{meant(name, [_flag(each.name) for each in fields(kind)])}"
        )
    return checked(kind, vars(values))


def _argument(hint: Any) -> dict[str, Any]:
    """What argparse is told of a type; what it takes for text `checked` converts."""
    # the first type of a union
    first = hint if get_origin(hint) in (None, Literal) else get_args(hint)[0]
    choices = get_args(first)
    if choices:
        return {"type": type(choices[0]), "choices": choices}
    if first is bool:
        return {"action": "store_true"}
    return {"type": first if first in (int, float) else str}


class _Help(argparse.HelpFormatter):
    """Paragraphs as wide as the terminal; indented lines, which are commands, as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = text.strip().split("\n\n")
        return "\n\n".join(
            each if each.startswith(" ") else textwrap.fill(each, width) for each in parts
        )


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line, as all others."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; --help has all options")


def _plain(value: Any) -> Any:
    """A value without the types that Python has beside it: paths as text, numbers of numpy as
    numbers."""
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    if isinstance(value, PurePath) or type(value).__module__ == "torch":
        return str(value)
    return value.item() if hasattr(value, "item") else value


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
