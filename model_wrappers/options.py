"""A decoder's options: one struct for each decoder, and one conversion that checks every name, type
and range.

Light: no torch. The rules of a single field are in its type (`Annotated[int, Meta(ge=1)]`,
`Literal[...]`), rules between fields in the struct's `check`.
"""

import math
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path, PurePath
from textwrap import shorten
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, inspect

MOST = {int: 2**31 - 1, float: 1e30}  # beyond these, int64 and float32 may overflow in a decoder
Positive = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
NotNegative = Annotated[float, Meta(ge=0)]
AboveZero = Annotated[float, Meta(gt=0)]
ShareAboveZero = Annotated[float, Meta(gt=0, le=1)]
T = TypeVar("T", bound="Options")


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of every decoder's options."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{name}={value} must be finite")
            if type(value) in MOST and abs(value) > MOST[type(value)]:
                raise ValueError(f"{name}={value} must be at most {MOST[type(value)]:g}")
        self.check()

    def check(self) -> None:
        """Rules between fields.

        Raises:
            ValueError: fields that do not go together.
        """


class SampleOptions(Options, frozen=True, kw_only=True):
    """Which tokens may be drawn above temperature 0; at temperature 0 both change nothing.

    Attributes:
        top_p: the smallest set of likeliest tokens whose probability is at least this (None: all).
        top_k: the k likeliest tokens (None: all). With both a token must be in both sets.
    """

    top_p: ShareAboveZero | None = None
    top_k: Positive | None = None


class EndOptions(SampleOptions, frozen=True, kw_only=True):
    """What every decoder does about the end of a response.

    Attributes:
        logits_eos_inf: EOS is never predicted.
        eos_penalty: nats that are taken off the logits of EOS and EoT, before anything else reads
            them. At temperature T their odds fall by the factor exp(-eos_penalty / T).
        confidence_eos_eot_inf: EOS and EoT are left out of the softmax that gives confidences, so
            that they are committed last, or re-masked first. They are predicted as often as
            without it. "official": above temperature 0 EoT alone, as in LLaDA's `generate`, which
            takes EOS out of other logits there (ML-GSAI/LLaDA#137).
        stop_at_eos: once all before an EOS is resolved, the masks after it become EOS; the text
            stays.
    """

    logits_eos_inf: bool = False
    eos_penalty: NotNegative = 0.0
    confidence_eos_eot_inf: bool | Literal["official"] = False
    stop_at_eos: bool = False


@cache
def note(text: str) -> None:
    """Print a line on stderr, once in a process."""
    print(text, file=sys.stderr)


def meant(
    name: object,
    valid: Iterable[str],
    kinds: Mapping[str, Collection[str]] | None = None,
    whole: bool = False,
) -> str:
    """The end of a message about a name that is unknown, or no name at all: what to write instead,
    in a line at most.

    Args:
        name: the unknown name.
        valid: the valid ones; those most like it are named, else some of all.
        kinds: names of other kinds, by kind.
        whole: name all valid ones in any case, as the Python interface does.
    """
    text = str(name)
    if kind := next((kind for kind, names in (kinds or {}).items() if text in names), ""):
        return f"; {text} is {kind}"
    known = {name.lower(): name for name in valid}
    near = [known[match] for match in get_close_matches(text.lower(), known, n=2)]
    every = ", ".join(known.values())
    listed = f"; valid: {every if whole else shorten(every, 100)}"
    return f"; did you mean {' or '.join(near)}?{listed if whole else ''}" if near else listed


def python_number(value: Any) -> Any:
    """A scalar of numpy's or torch's as Python's, a whole float as an int; anything else as it
    is."""
    if getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def convert_options(kind: type[T], values: dict[str, Any], whose: str) -> T:
    """The options of a decoder.

    Args:
        kind: their struct.
        values: by name.
        whose: the decoder's name, for messages.

    Raises:
        ValueError: a bad option, naming it and what is valid.
    """
    names = kind.__struct_fields__
    values = {name: python_number(value) for name, value in values.items()}
    for name in values:
        if name not in names:
            # A struct has its inherited fields first; a reader looks for the decoder's.
            valid = sorted(names, key=lambda field: field not in kind.__annotations__)
            raise ValueError(f"unknown option {name!r} for {whose}{meant(name, valid, whole=True)}")
        if not str(values[name]).isprintable():  # it is part of a method's name in the records
            raise ValueError(f"option {name}={values[name]!r} for {whose} must be printable text")
    try:
        return msgspec.convert(values, kind, dec_hook=path_from)
    except msgspec.ValidationError as error:
        field = re.search(r" - at `\$\.(\w+)", str(error))
        if field is None:  # a rule between fields, in its own words
            raise ValueError(f"{whose}: {error}") from error
        name = field[1]
        struct: Any = inspect.type_info(kind)
        wanted = describe_type(next(field.type for field in struct.fields if field.name == name))
        raise ValueError(f"option {name}={values[name]!r} for {whose} must be {wanted}") from error


def path_from(kind: type, value: Any) -> Any:
    """The path of a text, for msgspec. Raises ValueError for what is none."""
    if kind is Path and isinstance(value, str | PurePath):
        return Path(value)
    # becomes a ValidationError that names the field
    raise ValueError(f"a value of type {type(value).__name__}")


def describe_type(kind: inspect.Type) -> str:
    """A field's type and range in words: "a whole number of at least 1", "absorbing or uniform"."""
    match kind:
        case inspect.UnionType(types=types):
            return " or ".join(describe_type(part) for part in types)
        case inspect.LiteralType(values=values):
            return " or ".join(map(repr, values))
        case inspect.BoolType():
            return "True or False"
        case inspect.NoneType():
            return "None"
        case inspect.StrType():
            return "text"
        case inspect.CustomType(cls=cls) if cls is Path:
            return "a path"
        case (
            inspect.IntType(ge=low, le=high, gt=above)
            | inspect.FloatType(ge=low, le=high, gt=above)
        ):
            number = "a whole number" if isinstance(kind, inspect.IntType) else "a finite number"
            if low is not None and high is not None:
                return f"{number} in [{low:g}, {high:g}]"
            if above is not None:
                return f"{number} above {above:g}"
            return number if low is None else f"{number} of at least {low:g}"
        case _:
            return "a valid value"
