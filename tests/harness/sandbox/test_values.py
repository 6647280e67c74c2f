"""What crosses between a program and its judge: data with its exact type, and nothing that runs when it is read."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opencompass.utils.code_execution import type_aware_equal

from harness.sandbox.values import decode, encode

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
HASHABLE = st.recursive(SCALARS, lambda inner: st.lists(inner).map(tuple) | st.frozensets(inner), max_leaves=5)
DATA = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.sets(HASHABLE) | st.dictionaries(HASHABLE, inner), max_leaves=10
)


class Point(NamedTuple):
    """A tuple of a class of its own."""

    x: int
    y: int


class Colour(IntEnum):
    """An integer of a class of its own."""

    RED = 3


class Equal:
    """Equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def crossed(value: Any) -> Any:
    """A value after it has crossed; what is no data is a string, an object of an own class a pair."""
    kept: list[Any] = []

    def keep(each: Any) -> int:
        kept.append(each)
        return len(kept) - 1

    return decode(encode(value, keep), lambda number: f"own {number}", lambda name, base: (name, base))


@given(DATA)
def test_builtin_values_cross_unchanged(value: Any) -> None:
    assert type_aware_equal(crossed(value), value)


@pytest.mark.parametrize(
    "value",
    [
        10**10000,
        -(2**64),
        math.inf,
        1 - 2j,
        range(1, 9, 2),
        bytearray(b"x"),
        "\ud800\n\\n\x00\u2028",
        Counter("abca"),
        OrderedDict([(2, 1), (1, 2)]),
        deque([1, 2], maxlen=3),
        Decimal("0.10"),
        Fraction(1, 3),
        date(2024, 2, 29),
        datetime(2024, 2, 29, 1, 2, 3, 4),
        time(1, 2),
        timedelta(days=1, microseconds=3),
        np.float32(0.1),
        np.int64(3),
        np.bool_(True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_of_the_standard_library_and_numbers_of_numpy_cross_with_their_type(value: Any) -> None:
    found = crossed(value)
    assert found == value and type(found) is type(value)


def test_arrays_and_default_dictionaries_cross() -> None:
    array = np.array([[1.5, 2.0]], dtype=np.float32)
    found = crossed(array)
    assert np.array_equal(found, array) and found.dtype == array.dtype
    assert crossed(defaultdict(int, {1: 2})) == defaultdict(None, {1: 2})


def test_objects_of_own_classes_cross_as_their_builtin_base_or_as_numbers() -> None:
    assert crossed([Point(1, 2), Colour.RED]) == [("Point", (1, 2)), ("Colour", 3)]
    assert crossed([Equal(), len, Equal()]) == ["own 0", "own 1", "own 2"]


@pytest.mark.parametrize(
    "text", [b"", b"x", b"l2\ni1", b"i1\ni2", b'cos.system\nl1\n"true', b"ccollections.deque\ni1", b"\xff"]
)
def test_what_no_value_was_written_as_is_refused_and_not_executed(text: bytes) -> None:
    with pytest.raises((ValueError, TypeError, StopIteration)):
        decode(text, lambda number: number, lambda name, base: base)


def test_a_value_within_itself_does_not_cross() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(RecursionError):
        crossed(value)
