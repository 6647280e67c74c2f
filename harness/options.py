"""Command lines made from dataclasses: every command has one, whose fields are its options."""

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
    """How to type the command fef-dllm here: its name if it is on the PATH, else its path."""
    if shutil.which("fef-dllm"):
        return "fef-dllm"
    return os.path.relpath(Path(sys.executable).with_name("fef-dllm"))


def option(
    help: str | None,
    default: Any = None,
    least: float | None = None,
    most: float | None = None,
    positional: bool = False,
    group: str = "",
    **argument: Any,
) -> Any:
    """A field of a command's dataclass.

    Args:
        help: text of --help.
        default: the value if the option is not on the command line.
        least, most: the range of a number.
        positional: whether it has no flag.
        group: heading in --help, of this field and those after it that name none.
        argument: further keyword arguments of argparse.
    """
    metadata = {
        "least": least,
        "most": most,
        "positional": positional,
        "group": group,
        "argument": {"help": help, **argument},
    }
    return field(default=default, metadata=metadata)


def checked(kind: type[T], values: Mapping[str, Any]) -> T:
    """An instance of a command's dataclass, with checked values.

    Its further attribute `named` has the names of the options that got a value.

    Args:
        kind: the dataclass.
        values: by field name; None and False count as no value.

    Raises:
        UserError: an unknown name, or a value of a wrong type or out of its range.
    """
    known = {spec.name: spec for spec in fields(kind)}
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
    options = kind(**converted)
    # An option that was set to its default is not one that was left out. The dataclass is frozen:
    # hence vars().
    vars(options)["named"] = frozenset(converted)
    return options


def _converted(value: Any, hint: Any, flag: str) -> Any:
    """A value converted to its option's type. Raises UserError if that is impossible."""
    try:
        return msgspec.convert(value, hint, dec_hook=path_from)
    except msgspec.ValidationError as error:
        # A user cannot type None, so the message leaves it out.
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
    for spec in fields(kind):
        metadata = spec.metadata
        if metadata["group"]:
            group = parser.add_argument_group(metadata["group"])
        argument = _argument(hints[spec.name]) | metadata["argument"]
        if metadata["positional"]:
            parser.add_argument(spec.name, **argument)
        else:
            group.add_argument(_flag(spec.name), **argument)
    values, unknown = parser.parse_known_args(line)
    if unknown:
        name = unknown[0].partition("=")[0]
        if not name.startswith("-"):
            raise UserError(f"{name} is one argument too many; --help has all options")
        raise UserError(
            f"unknown option {name}{meant(name, [_flag(spec.name) for spec in fields(kind)])}"
        )
    return checked(kind, vars(values))


def _argument(hint: Any) -> dict[str, Any]:
    """Keyword arguments of argparse for a type; what stays text here `checked` converts."""
    # Of a union, such as int | None, the first type counts.
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
            part if part.startswith(" ") else textwrap.fill(part, width) for part in parts
        )


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are UserErrors, of one line as all others."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; --help has all options")


def _plain(value: Any) -> Any:
    """A value that msgspec can convert: paths and torch's dtypes as text, numpy's numbers as
    Python's, lists as tuples."""
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    if isinstance(value, PurePath) or type(value).__module__ == "torch":
        return str(value)
    return value.item() if hasattr(value, "item") else value


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
