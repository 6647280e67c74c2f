"""Lists with arguments on a command line: how they are cut, read and written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.elements import alternatives, call_of, elements_of, shown, text_of, value_of, written
from harness.errors import UserError

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1)
VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS)


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("llada,llada/2,fef-2", ["llada", "llada/2", "fef-2"]),
        (
            "llada; fef(steps=3,window=12); ./mine.py:mine(k=2)",
            ["llada", "fef(steps=3,window=12)", "./mine.py:mine(k=2)"],
        ),
        (" a ,, b ;", ["a", "b"]),
        ('a(b="x,;)y"),c', ['a(b="x,;)y")', "c"]),
        ("./it's.py:a,b", ["./it's.py:a", "b"]),
        ("", []),
    ],
)
def test_elements_are_cut_outside_brackets(text: str, elements: list[str]) -> None:
    assert elements_of(text) == elements


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("a(b=1|2.5)", ["a(b=1)", "a(b=2.5)"]),
        ("p:a+dual(b=1|2,c=x|y)", [f"p:a+dual(b={b},c={c})" for b in "12" for c in "xy"]),
        ('a(b="x|y", c=[1,2])', ['a(b="x|y",c=[1,2])']),
        ("a", ["a"]),
        ("a(b=|)", ["a(b=|)"]),
    ],
)
def test_several_values_of_an_argument_are_several_elements(text: str, elements: list[str]) -> None:
    assert alternatives(text) == elements


@pytest.mark.parametrize("text", ["a(b=1", "a)b", "a(b=[1)", "a(b='x)"])
def test_brackets_and_quotes_that_do_not_match_are_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"closed|closes"):
        elements_of(text)


@pytest.mark.parametrize(
    ("text", "head", "arguments"),
    [
        ("fef", "fef", {}),
        ("fef()", "fef", {}),
        ("fef(steps=3, window = 12)", "fef", {"steps": 3, "window": 12}),
        ("a(b=true,c=False,d=null,e=None)", "a", {"b": True, "c": False, "d": None, "e": None}),
        ("a(b=0.9,c=1e-3,d=-2)", "a", {"b": 0.9, "c": 1e-3, "d": -2}),
        ("""a(b='x, y',c="z",d=./q.json,e=[1, 2])""", "a", {"b": "x, y", "c": "z", "d": "./q.json", "e": [1, 2]}),
        ("mine=./q (1).jsonl(answer=gold)", "mine=./q (1).jsonl", {"answer": "gold"}),
        ("mine=./q (1).jsonl", "mine=./q (1).jsonl", {}),
    ],
)
def test_arguments_are_read_as_literals_or_bare_text(text: str, head: str, arguments: dict[str, Any]) -> None:
    assert call_of(text) == (head, arguments)


@pytest.mark.parametrize("text", ["a(3)", "a(b)", "a(b=)", "a(=1)", "a(b c=1)", "a(b=1,b=2)"])
def test_what_is_no_argument_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"no argument|twice"):
        call_of(text)


@given(value=VALUES)
def test_a_value_is_read_as_it_was_written(value: Any) -> None:
    read = value_of(text_of(value))
    assert read == value and type(read) is type(value)


@given(arguments=st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES))
def test_an_element_is_read_as_it_was_written(arguments: dict[str, Any]) -> None:
    text = written("x", arguments)
    assert elements_of(text) == [text] and call_of(text) == ("x", arguments)


def test_the_order_of_arguments_does_not_matter() -> None:
    assert written("fef", {"window": 12, "steps": 3}) == written("fef", {"steps": 3, "window": 12})


def test_a_label_has_the_names_of_files_alone() -> None:
    assert shown({"k": 2, "baseline": Path("/a/b/corpus.json")}) == "baseline=corpus.json, k=2"
