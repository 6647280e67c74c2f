"""What crosses between the process of a program and that of its judge: values as text, through two pipes.

Builtin values and some of the standard library cross with their exact type, so that the judge's comparisons run no code
of the program; for anything else a number crosses. A line is one value, or the head of one that the following lines
make up. Unlike with pickle and marshal, reading such a text executes nothing.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

TYPE_CHECKING = False  # typing takes longer to load than most programs to run
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

LENGTH_BYTES = 4
LONGEST = 2**28  # bytes
LONGEST_MESSAGE = 1000  # characters of an exception's
CONTAINERS: dict[str, Callable[..., Any]] = {"l": list, "t": tuple, "s": set, "f": frozenset}
LETTERS = {kind: letter for letter, kind in CONTAINERS.items()}
BYTES: dict[str, Any] = {"b": bytes, "B": bytearray}
BASES = (dict, list, tuple, set, frozenset, str, int, float)  # of classes that a program defines
# The arguments that make an equal object of a class, by its module and name.
STANDARD: dict[str, Callable[[Any], list[Any]]] = {
    "builtins.complex": lambda value: [value.real, value.imag],
    "builtins.range": lambda value: [value.start, value.stop, value.step],
    "collections.Counter": lambda value: [dict(value)],
    "collections.OrderedDict": lambda value: [list(value.items())],
    "collections.defaultdict": lambda value: [None, dict(value)],
    "collections.deque": lambda value: [list(value), value.maxlen],
    "decimal.Decimal": lambda value: [str(value)],
    "fractions.Fraction": lambda value: [value.numerator, value.denominator],
    "datetime.date": lambda value: [value.year, value.month, value.day],
    "datetime.time": lambda value: list(value.__reduce__()[1]),
    "datetime.datetime": lambda value: list(value.__reduce__()[1]),
    "datetime.timedelta": lambda value: [value.days, value.seconds, value.microseconds],
}


class Broken(Exception):
    """The other side ended, or wrote what is no message."""


class OutOfTime(Exception):
    """The time limit; an ordinary exception, as in OpenCompass's evaluators: a program may catch it."""


class Channel:
    """One side of a pair of pipes, by descriptors; its functions are bound here, for a program may replace os's."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._read, self._write = os.read, os.write

    def send(self, message: bytes) -> None:
        """Write a message. Raises Broken if nobody reads."""
        rest = memoryview(len(message).to_bytes(LENGTH_BYTES, "big") + message)
        try:
            while rest:
                rest = rest[self._write(self._writing, rest) :]
        except OSError as error:
            raise Broken(str(error)) from None

    def receive(self) -> bytes:
        """Wait for a message. Raises Broken if the other side ended or wrote something else."""
        length = int.from_bytes(self._bytes(LENGTH_BYTES), "big")
        if length > LONGEST:
            raise Broken("the program's process answered nonsense: too long")
        return self._bytes(length)

    def _bytes(self, length: int) -> bytes:
        parts = []
        while length:
            try:
                part = self._read(self._reading, min(length, 2**20))
            except OSError as error:
                raise Broken(str(error)) from None
            if not part:
                raise Broken("the process ended without a verdict")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)


def encode(value: Any, other: Callable[[Any], int]) -> bytes:
    """A value as text; `other` gives a number for one that is no data, or raises. RecursionError: nested too deep."""
    lines: list[str] = []
    _write(value, lines.append, other)
    return "\n".join(lines).encode("ascii")


def decode(text: bytes, stand_in: Callable[[int], Any], like: Callable[[str, Any], Any]) -> Any:
    """The value of a text of `encode`; stand_in: of a number, like: of a program's class. Raises for any other text."""
    lines = iter(text.decode("ascii").split("\n"))
    value = _read(lines, stand_in, like)
    if next(lines, None) is not None:
        raise ValueError("more than one value")
    return value


def _write(value: Any, line: Callable[[str], None], other: Callable[[Any], int]) -> None:
    kind, numpy = type(value), sys.modules.get("numpy")
    name = f"{kind.__module__}.{kind.__qualname__}"
    if kind is int:
        line(f"i{value:x}")  # not decimal: Python limits the digits
    elif kind is str:
        line(f'"{_escaped(value)}')
    elif value is None or kind is bool or kind is float:
        line(f"r{value!r}" if kind is float else "-" if value is None else "+1" if value else "+0")
    elif kind in LETTERS:
        line(f"{LETTERS[kind]}{len(value)}")
        for each in value:
            _write(each, line, other)
    elif kind is dict:
        line(f"d{len(value)}")
        for name, each in value.items():
            _write(name, line, other)
            _write(each, line, other)
    elif kind is bytes or kind is bytearray:
        line(f"{'b' if kind is bytes else 'B'}{value.hex()}")
    elif name in STANDARD and getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is kind:
        line(f"c{name}")
        _write(STANDARD[name](value), line, other)
    elif numpy is not None and isinstance(value, (numpy.generic, numpy.ndarray)) and value.dtype.kind in "biufcUS":
        line(f"{'A' if kind is numpy.ndarray else 'a'}{value.dtype.str}")
        _write(value.tolist(), line, other)
    elif isinstance(value, BASES):
        line(f"k{_escaped(kind.__name__)}")
        _write(_as_base(value), line, other)
    else:
        line(f"o{other(value):x}")


def _as_base(value: Any) -> Any:
    """What an object of a subclass is as an object of its builtin base, whatever its class redefines."""
    base: Any = next(base for base in BASES if isinstance(value, base))
    if base is dict:
        return dict(dict.items(value))
    if base is str:
        return str.__str__(value)
    if base is int:
        return int.__index__(value)
    return float.__float__(value) if base is float else base(base.__iter__(value))


def _read(lines: Iterator[str], stand_in: Callable[[int], Any], like: Callable[[str, Any], Any]) -> Any:
    line = next(lines)
    letter, rest = line[:1], line[1:]
    if letter == "i" or letter == "o":
        number = int(rest, 16)
        return number if letter == "i" else stand_in(number)
    if letter == '"':
        return _unescaped(rest)
    if letter == "r":
        return float(rest)
    if letter == "-" or letter == "+":
        return None if letter == "-" else rest == "1"
    if letter in CONTAINERS:
        return CONTAINERS[letter]([_read(lines, stand_in, like) for _ in range(int(rest))])
    if letter == "d":
        return {_read(lines, stand_in, like): _read(lines, stand_in, like) for _ in range(int(rest))}
    if letter in BYTES:
        return BYTES[letter].fromhex(rest)
    value = _read(lines, stand_in, like)
    if letter == "k":
        return like(_unescaped(rest), value)
    if letter == "c" and rest in STANDARD:
        module, name = rest.split(".")
        return getattr(import_module(module), name)(*value)
    if letter == "a" or letter == "A":
        numpy = import_module("numpy")
        array = numpy.array(value, dtype=numpy.dtype(rest))
        return array if letter == "A" else array[()]
    raise ValueError(f"no kind of value: {line[:50]}")


def _escaped(text: str) -> str:
    return text.encode("unicode_escape").decode("ascii")


def _unescaped(text: str) -> str:
    return text.encode("ascii").decode("unicode_escape")
