"""Which names of a program its tests use: its functions, never what a program could put in the place of a builtin."""

from __future__ import annotations

from opencompass.utils.code_execution import TYPE_AWARE_EQUAL_NAME, make_assertions_type_aware

from harness.sandbox.needs import needs


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
