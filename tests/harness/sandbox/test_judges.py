"""What the installed judges make of right answers in other forms: the rows of docs/measuring.md."""

from collections import Counter

import numpy as np
import pytest
from opencompass.datasets import humaneval_postprocess_v2
from opencompass.datasets.gsm8k import (
    Gsm8kEvaluator,
    gsm8k_dataset_postprocess,
    gsm8k_postprocess,
)
from opencompass.utils.code_execution import type_aware_equal

from harness.sandbox.evaluators import same_mathematics

MINUS = "\u2212"


@pytest.mark.parametrize(
    ("response", "gold", "right"),
    [
        (r"\boxed{\dfrac12}", r"\frac{1}{2}", True),
        (r"\boxed{1/2}", r"\frac{1}{2}", True),
        (r"\boxed{0.5}", r"\frac{1}{2}", False),
        (r"\boxed{x^2}", "x^2", True),
        (r"\boxed{x^{2}}", "x^2", False),
        (r"\boxed{30^\circ}", r"30^\circ", True),
        (r"\boxed{30°}", r"30^\circ", False),
        (r"\boxed{-5}", "-5", True),
        (rf"\boxed{{{MINUS}5}}", "-5", False),
        (r"\boxed{5\text{ cm}}", "5", True),
        (r"\boxed{5\mathrm{ cm}}", "5", False),
        (r"\boxed{5\text{ km}}", r"5\text{ cm}", True),
        ("The answer is 5", "5", True),
        ("**Answer:** 5", "5", False),
        (r"so it is \boxed{5", "5", False),  # the response is full
    ],
)
def test_math(response: str, gold: str, right: bool) -> None:
    assert same_mathematics(response, gold) is right


@pytest.mark.parametrize(
    ("response", "gold", "right"),
    [
        ("The answer is 5.", "5", True),
        ("The answer is $5", "5", True),
        ("The answer is -12", "-12", True),
        (f"The answer is {MINUS}12", "-12", False),
        ("The answer is - 5", "-5", False),
        ("The answer is -$5", "-5", False),
        ("The answer is 70,000", "70000", False),  # read as 000
        ("The answer is 6/2", "3", False),
        ("He is 7-12", "12", False),  # read as -12
        ("It is 5, not 6", "5", False),
        ("It is 5.\n\nQuestion: How many are 7?", "5", True),
        ("Question: How many? It is 5", "5", False),
    ],
)
def test_gsm8k(response: str, gold: str, right: bool) -> None:
    read = [gsm8k_postprocess(response)]
    golds = [gsm8k_dataset_postprocess(f"#### {gold}")]
    assert Gsm8kEvaluator().score(read, golds)["details"][0]["correct"] is right


@pytest.mark.parametrize(
    ("returned", "expected", "right"),
    [
        (2, 2, True),
        ([1, 2], [1, 2], True),
        (2.0, 2, False),
        (True, 1, False),
        ((1, 2), [1, 2], False),
        (np.int64(2), 2, False),
        (Counter("a"), {"a": 1}, False),
    ],
)
def test_mbpp(returned: object, expected: object, right: bool) -> None:
    assert returned == expected or isinstance(returned, tuple)
    assert type_aware_equal(returned, expected) is right


ADD = 'def add(a, b):\n    """Return a + b."""\n'
BODY = "    return a + b\n"


@pytest.mark.parametrize(
    ("response", "right"),
    [
        (f"```python\n{ADD}{BODY}```", True),
        (f"Here it is:\n```python\n{ADD}{BODY}```\nIt adds.", True),
        (f"{ADD}{BODY}", True),
        (BODY, False),
        (f"```python\n{ADD}{BODY}", False),
        (f"```python\nadd(1, 2)\n```\n```python\n{ADD}{BODY}```", False),
    ],
)
def test_humaneval(response: str, right: bool) -> None:
    program = f"{ADD}{humaneval_postprocess_v2(response)}\nassert add(1, 2) == 3"
    try:
        exec(program, {})
        passed = True
    except (SyntaxError, AssertionError):
        passed = False
    assert passed is right
