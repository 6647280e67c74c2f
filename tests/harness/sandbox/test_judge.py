"""The judge and the program in two processes: tests reach what a program returns as in one, and a program reaches no
verdict."""

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
from opencompass.utils.code_execution import TYPE_AWARE_EQUAL_NAME, make_assertions_type_aware, type_aware_equal

from harness.sandbox.execute import UNSAFE, Outcome, execute
from harness.sandbox.request import Program, needs
from harness.sandbox.values import decode, encode


def outcome(code: str, tests: str, prelude: str = "", entry: str = "") -> Outcome:
    """The outcome of a program in a plain process."""
    return execute(Program(code, 2.0, 3.0, tests=tests, prelude=prelude, entry=entry), UNSAFE)


REACHED = {
    "a generator": ("def f(x):\n    yield from range(x)", "assert list(f(3)) == [0, 1, 2] and next(f(1)) == 0"),
    "a generator without end": ("def f():\n    while True:\n        yield 1", "assert next(iter(f())) == 1"),
    "a function": ("def f(x):\n    return lambda y, z=1: x + y + z", "assert f(3)(4, z=2) == 9"),
    "an object": ("class f:\n    def __init__(self, x):\n        self.x = x", "assert f(3).x == 3"),
    "an object given back": (
        "class Pair:\n    def __init__(self, x, y):\n        self.x, self.y = x, y\n"
        "def f(pairs):\n    return sum(pair.x - pair.y for pair in pairs)",
        "assert f([Pair(5, 3), Pair(2, 1)]) == 3",
    ),
    "an object's length, text and items": (
        "class f:\n    __len__ = lambda self: 2\n    __str__ = lambda self: 's'\n"
        "    __getitem__ = lambda self, key: 2 * key",
        "assert len(f()) == 2 and str(f()) == 's' and f()[3] == 6",
    ),
    "a truth": ("import re\n\ndef f(x):\n    return re.match('a', x)", "assert f('ab')\nassert not f('b')"),
    "an exception": (
        "def f(x):\n    raise KeyError(x)",
        "try:\n    f(1)\n    assert False\nexcept LookupError as error:\n    assert str(error) == '1'",
    ),
    "an exception of its own": (
        "class Own(ValueError): pass\n\ndef f(x):\n    raise Own('own')",
        "try:\n    f(1)\n    assert False\nexcept ValueError as error:\n    assert str(error) == 'own'",
    ),
    "a module it imports": ("import math\n\ndef f(x):\n    return x / 3", "assert math.isclose(f(1), 1 / 3)"),
    "a value": ("f = {'a': (1, [2.5])}", "assert f == {'a': (1, [2.5])}"),
    "a large value": ("def f(x):\n    return list(range(x))", "assert sum(f(200000)) == 19999900000"),
    "a number of many digits": ("def f(x):\n    return 10 ** x", "assert f(9000) == 10 ** 9000"),
    "a text that no encoding has": ("def f():\n    return chr(0xd800) + '\\n'", "assert f() == chr(0xd800) + chr(10)"),
    "a value nested deep": ("def f(x):\n    return [f(x - 1)] if x else []", "assert f(100)[0][0] == f(98)"),
    "a name that a builtin has": ("def sum(a, b):\n    return a * b", "assert sum(2, 3) == 6"),
}


@pytest.mark.parametrize("name", REACHED)
def test_tests_reach_what_a_program_returns(name: str) -> None:
    assert outcome(*REACHED[name]) == Outcome("pass")


FORGED = {
    "a builtin of the tests": (
        "def f(x): return 0\ndef set(x): return 0\ndef len(x): return 3",
        "assert set(f(1)) == set([2])",
    ),
    "a builtin in its own process": (
        "import builtins\nbuiltins.set = builtins.len = lambda x: 0\ndef f(x): return [0]",
        "assert set(f(1)) == set([2])",
    ),
    "a module of the tests": (
        "class math:\n    isclose = lambda *pair: True\ndef f(x): return 0",
        "assert math.isclose(f(1), 1.0)",
    ),
    "a comparison": (
        "class f:\n    __init__ = lambda *x: None\n    __lt__ = __gt__ = lambda *pair: True",
        "assert f(1) < 3",
    ),
    "a difference": (
        "class Zero(float):\n    __sub__ = __rsub__ = lambda *pair: 0.0\n    __abs__ = lambda self: 0.0\n"
        "def f(x): return Zero(9)",
        "assert abs(f(1) - 3.0) < 1e-6",
    ),
    "an inequality": (
        "class f:\n    __init__ = lambda *x: None\n    __eq__ = lambda *x: True\n    __ne__ = lambda *x: False",
        "assert not f(1) != 3",
    ),
    "an element": ("class One(int):\n    __eq__ = lambda *x: True\ndef f(x): return [One(1)]", "assert f(1) == [7]"),
    "a key": (
        "class One(str):\n    __eq__ = lambda *x: True\n    __hash__ = lambda self: hash('b')\n"
        "def f(x): return {One('a'): 1}",
        "assert f(1) == {'b': 1}",
    ),
    "an answer in place of a test": (
        "import gc\ndef f(x):\n    for each in gc.get_objects():\n        if type(each).__name__ == 'Channel':\n"
        "            each.send(b'l2\\n\"value\\n+1')\n    return 0",
        "assert f(1) == 3",
    ),
}


# Adds to what its process answers when the judge asks for the names that the tests need.
ADDS_TO_ITS_ANSWER = """
import sys
frame = sys._getframe()
while 'objects' not in frame.f_locals:
    frame = frame.f_back
kind = type(frame.f_locals['objects'])
honest = kind.answer
def answer(self, question, scope):
    found = honest(self, question, scope)
    return found | {NAME: VALUE} if isinstance(found, dict) else found
kind.answer = answer
def f(x):
    return 0
"""
ADDED = {
    "the comparison of the tests": ("same", "lambda *pair: True", "assert same(f(1), 3)"),
    "abs": ("abs", "lambda value: 3", "assert abs(f(1)) == 3"),
    "range, so that a loop never runs": ("range", "lambda count: []", "for n in range(3):\n    assert f(n) == 3"),
    "the builtins": ("__builtins__", "{'AssertionError': ValueError, 'abs': lambda x: 3}", "assert abs(f(1)) == 3"),
    "a helper of the prompt": ("poly", "lambda x: 0", "assert poly(f(1)) == 0"),
    "a name that the tests bind": ("expected", "0", "expected = 3\nassert f(1) == expected"),
    "a module of the tests": ("math", "1", "import math\nassert math.isclose(f(1), 3.0)"),
}


@pytest.mark.parametrize("name", ADDED)
def test_a_name_that_was_not_asked_for_does_not_reach_the_tests(name: str) -> None:
    added, value, tests = ADDED[name]
    code = ADDS_TO_ITS_ANSWER.replace("NAME", repr(added)).replace("VALUE", value)
    prelude = "def poly(x):\n    return x + 1\n\ndef f(x):\n    pass\n"
    setup, same = "def compare(actual, expected):\n    return actual == expected", {"same": "compare"}
    program = Program(code, 2.0, 3.0, tests=tests, prelude=prelude, entry="f", setup=setup, given=same)
    assert execute(program, UNSAFE).kind == "assertion"


@pytest.mark.parametrize("name", FORGED)
def test_a_program_cannot_replace(name: str) -> None:
    assert outcome(*FORGED[name]).kind in ("assertion", "failed")


def test_comparisons_of_own_objects_are_counted() -> None:
    code = "class E:\n    __eq__ = lambda *x: True\nclass I(int): pass\ndef f(x): return E() if x else I(3)"
    assert outcome(code, "assert f(1) == 3") == Outcome("assertion", "", 1)
    assert outcome(code, "assert f(0) == 3") == Outcome("pass", "", 1)
    assert outcome(code, "assert [f(1), f(1)] != 3") == Outcome("pass", "", 0)


def test_what_the_problem_defines_is_not_the_programs() -> None:
    prelude = "def helper(x):\n    return x + 1\n\ndef f(x):\n    '''Invert helper.'''\n"
    code = "def helper(x):\n    return 'forged'\n\ndef f(x):\n    return 'forged'"
    tests = "def check(candidate):\n    assert candidate(helper(1)) == 1 or helper(1) == candidate(1)\ncheck(f)"
    assert outcome(code, tests, prelude, "f").kind == "assertion"
    assert outcome("def f(x):\n    return x - 1", tests, prelude, "f").kind == "pass"


def test_arguments_that_are_no_data_fail_the_test_and_say_so() -> None:
    found = outcome("def f(x):\n    return 1", "assert f(lambda: 1) == 1")
    assert found == Outcome("failed", "a test passes a function, which is no data")


def test_the_time_limit_holds_in_the_program_and_between_its_answers() -> None:
    slow = "import time\n\ndef f(x):\n    time.sleep(x)\n    return 1"
    assert execute(Program(slow, 0.3, 2.0, tests="assert f(1) == 1"), UNSAFE) == Outcome("timeout")
    waits = "assert f(0) == 1\nimport time\ntime.sleep(0.6)\nassert f(0) == 1"
    assert execute(Program(slow, 0.3, 2.0, tests=waits), UNSAFE) == Outcome("timeout")


# Which names of a program its tests use
def test_the_function_under_test_is_the_programs_and_builtins_are_not() -> None:
    tests = "assert set(f((1, 2))) == set([2])\nassert len([x for x in f(1)]) == 1"
    assert needs(tests) == (["f"], [])


def test_modules_that_tests_take_attributes_of_are_no_objects_of_the_program() -> None:
    assert needs("assert math.isclose(f(1), 2.0)") == (["f"], ["math"])
    assert needs("import math\nassert math.isclose(f(1), 2.0)") == (["f"], [])


def test_a_builtin_is_the_programs_where_the_tests_are_for_a_function_of_that_name() -> None:
    tests = make_assertions_type_aware("assert sum(10, 15) == 6")
    assert needs(tests, given=[TYPE_AWARE_EQUAL_NAME]) == (["sum"], [])


def test_what_the_prelude_defines_stays_but_the_function_under_test() -> None:
    prelude = "import math\n\ndef poly(xs, x):\n    return 0\n\ndef find_zero(xs):\n    '''Find it.'''\n"
    tests = "def check(candidate):\n    assert abs(poly([1], candidate([1]))) < math.e\ncheck(find_zero)"
    assert needs(tests, prelude, "find_zero") == (["find_zero"], [])


def test_text_that_does_not_parse_needs_nothing() -> None:
    assert needs("assert f(") == ([], [])
    assert needs("f(1)", "def f(") == (["f"], [])


# What crosses between them: data with its exact type, and nothing that runs when it is read
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
        *(10**10000, -(2**64), math.inf, 1 - 2j, range(1, 9, 2), bytearray(b"x"), "\ud800\n\\n\x00\u2028"),
        *(Counter("abca"), OrderedDict([(2, 1), (1, 2)]), deque([1, 2], maxlen=3), Decimal("0.10"), Fraction(1, 3)),
        *(date(2024, 2, 29), datetime(2024, 2, 29, 1, 2, 3, 4), time(1, 2), timedelta(days=1, microseconds=3)),
        *(np.float32(0.1), np.int64(3), np.bool_(True)),
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
