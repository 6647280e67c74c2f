"""Options of decoders: a struct for each decoder, and one conversion that checks names, types and
ranges.

This module does not import torch. The rules of a single field are in its type (`Annotated[int,
Meta(ge=1)]`, `Literal[...]`), rules between fields in the struct's `check`.
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

Positive = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
# Larger values times a logit are not finite in float32.
NotNegative = Annotated[float, Meta(ge=0, le=1e30)]
AboveZero = Annotated[float, Meta(gt=0, le=1e30)]
ShareAboveZero = Annotated[float, Meta(gt=0, le=1)]
T = TypeVar("T", bound="Options")


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of the options of every decoder."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{name}={value} must be finite")
        self.check()

    def check(self) -> None:
        """Check rules between fields; a subclass overrides this.

        Raises:
            ValueError: fields do not go together.
        """


class SampleOptions(Options, frozen=True, kw_only=True):
    """Which tokens may be drawn above temperature 0; at temperature 0 they change nothing.

    Attributes:
        top_p: only tokens of the smallest set of likeliest tokens whose probability is together at
            least this (None: all).
        top_k: only the k likeliest tokens (None: all). With both, a token must be in both sets.
    """

    top_p: ShareAboveZero | None = None
    top_k: Positive | None = None


class EndOptions(SampleOptions, frozen=True, kw_only=True):
    """Options about the end of a response.

    Attributes:
        logits_eos_inf: whether EOS is never predicted.
        eos_penalty: nats that are subtracted from the logits of EOS and EoT before anything reads
            them. At temperature T their odds fall by the factor exp(-eos_penalty / T).
        confidence_eos_eot_inf: whether EOS and EoT are excluded from the softmax that gives
            confidences, so that they are committed last, or re-masked first. They are predicted as
            often as without it. "official" excludes only EoT above temperature 0, as LLaDA's
            `generate`, which takes EOS out of other logits there (ML-GSAI/LLaDA#137).
        stop_at_eos: whether the masks after an EOS become EOS once all positions before it are
            resolved; the text stays the same.
    """

    logits_eos_inf: bool = False
    eos_penalty: NotNegative = 0.0
    confidence_eos_eot_inf: bool | Literal["official"] = False
    stop_at_eos: bool = False


@cache
def note(text: str) -> None:
    """Print a line on stderr; the same line is printed once in a process."""
    print(text, file=sys.stderr)


def first_few(names: Iterable[object], most: int = 5) -> str:
    """The first names of a list as text, and how many more there are.

    Args:
        names: in their order.
        most: that are named.
    """
    texts = [str(name) for name in names]
    more = len(texts) - most
    shown = ", ".join(texts[:most])
    return f"{shown} and {more} more" if more > 0 else shown


def meant(
    name: object,
    valid: Iterable[str],
    kinds: Mapping[str, Collection[str]] | None = None,
    whole: bool = False,
) -> str:
    """The end of an error message about an unknown name: which names to write instead.

    Args:
        name: the unknown name, or a value that is no name.
        valid: the valid names. The message suggests those most like `name`, or lists some of all.
        kinds: names of other kinds, by kind: the message says if `name` is one of these.
        whole: whether the message lists all valid names in any case, as in the Python interface.
    """
    text = str(name)
    for kind, members in (kinds or {}).items():
        if text in members:
            return f"; {text} is {kind}"
    lowered = {valid_name.lower(): valid_name for valid_name in valid}
    close = [lowered[match] for match in get_close_matches(text.lower(), lowered, n=2)]
    names = ", ".join(lowered.values())
    listing = f"; valid: {names if whole else shorten(names, 100)}"
    if not close:
        return listing
    return f"; did you mean {' or '.join(close)}?{listing if whole else ''}"


def python_number(value: Any) -> Any:
    """A scalar of numpy or torch as a Python number, and a whole float as an int; any other value
    unchanged."""
    if getattr(value, "shape", None) == ():
        value = value.item()
    # Beyond 2**53 torch would refuse the whole number.
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        return int(value)
    return value


def convert_options(kind: type[T], values: dict[str, Any], decoder_name: str) -> T:
    """Make a decoder's options from values.

    Args:
        kind: the options' struct type.
        values: values by name.
        decoder_name: for messages.

    Raises:
        ValueError: an option is unknown or has a bad value; the message says what is valid.
    """
    names = kind.__struct_fields__
    values = {name: python_number(value) for name, value in values.items()}
    for name in values:
        if name not in names:
            # A struct has its inherited fields first; a reader looks for the decoder's.
            valid = sorted(names, key=lambda field: field not in kind.__annotations__)
            raise ValueError(
                f"unknown option {name!r} for {decoder_name}{meant(name, valid, whole=True)}"
            )
    try:
        return msgspec.convert(values, kind, dec_hook=path_from)
    except msgspec.ValidationError as error:
        field = re.search(r" - at `\$\.(\w+)", str(error))
        if field is None:  # a rule between fields, in its own words
            raise ValueError(f"{decoder_name}: {error}") from error
        name = field[1]
        struct: Any = inspect.type_info(kind)
        wanted = describe_type(next(field.type for field in struct.fields if field.name == name))
        raise ValueError(
            f"option {name}={values[name]!r} for {decoder_name} must be {wanted}"
        ) from error


def path_from(kind: type, value: Any) -> Any:
    """Convert text to a path, for msgspec. Raises ValueError for any other type or value."""
    if kind is Path and isinstance(value, str | PurePath):
        return Path(value)
    # msgspec turns this into a ValidationError that names the field.
    raise ValueError(f"a value of type {type(value).__name__}")


def describe_type(kind: inspect.Type) -> str:
    """A field's type and range in words, as "a whole number of at least 1" or "True or False"."""
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
