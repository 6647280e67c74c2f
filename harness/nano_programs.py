"""Generated programming problems: a signature and docstring to complete (humaneval), a task with asserts (mbpp).

One problem has many correct responses: one expression or several statements, a loop or a comprehension, and names of
local variables drawn at random. A response that mixes two of them (assigns `total`, returns `result`) is wrong: that is
the factorization error that these suites are there to show. Expected values come from running a reference response.
"""

from __future__ import annotations

from random import Random
from typing import Any

from harness.nano_problems import Problem

ARGUMENTS = (("a", "b"), ("x", "y"), ("n", "m"), ("p", "q"))
RESULTS = ("total", "result", "value", "out", "res")
ELEMENTS = ("v", "e", "item", "num")
LISTS = ("nums", "data", "xs", "values")
VERBS = ("calc", "find", "get", "make", "solve", "work")
TESTS = {"above": ">", "below": "<", "at least": ">=", "at most": "<=", "other than": "!="}
CHANGES = {"plus": "+", "minus": "-", "times": "*"}
NOUNS = ("amount", "level", "number", "rate", "score", "sum")


def humaneval(rng: Random) -> Problem:
    """Two to four arithmetic steps on two numbers, told in a docstring."""
    a, b = rng.choice(ARGUMENTS)
    name = f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}"
    base = rng.choice(("sum", "product", "difference", "maximum", "minimum"))
    later = [(rng.choice(("plus", "minus", "times")), rng.randint(2, 9)) for _ in range(rng.randint(1, 3))]
    told = "".join(f", {word} {k}" for word, k in later)
    signature = f"def {name}({a}, {b}):\n"
    prompt = f'{signature}    """Return the {base} of {a} and {b}{told}."""\n'
    response = signature + _arithmetic_body(rng, base, a, b, later)
    function = _run(response, name)
    checks = "".join(
        f"    assert candidate({u}, {v}) == {function(u, v)}\n" for u, v in ((3, 5), (7, 2), (4, 4), (0, 9), (12, 8))
    )
    row = {
        "prompt": prompt,
        "entry_point": name,
        "canonical_solution": response.removeprefix(signature),
        "test": f"def check(candidate):\n{checks}",
    }
    return Problem(f"humaneval {base}{told}", prompt, response, row)


def _arithmetic_body(rng: Random, base: str, a: str, b: str, later: list[tuple[str, int]]) -> str:
    left, right = (a, b) if base == "difference" or rng.random() < 0.5 else (b, a)
    infix = {"sum": "+", "product": "*", "difference": "-"}
    first = f"{left} {infix[base]} {right}" if base in infix else f"{base[:3]}({left}, {right})"
    symbols = {"plus": "+", "minus": "-", "times": "*"}
    style = rng.choice(("expression", "update", "rebind", "two names"))
    if style == "expression":
        whole = first
        for word, k in later:
            whole = f"({whole}) {symbols[word]} {k}"
        return f"    return {whole}\n"
    name, second = rng.sample(RESULTS, 2)
    lines = [f"{name} = {first}"]
    for word, k in later[:-1] if style == "two names" else later:
        lines.append(f"{name} {symbols[word]}= {k}" if style == "update" else f"{name} = {name} {symbols[word]} {k}")
    if style == "two names":
        word, k = later[-1]
        lines.append(f"{second} = {name} {symbols[word]} {k}")
        name = second
    lines.append(f"return {name}")
    return "".join(f"    {line}\n" for line in lines)


def mbpp(rng: Random) -> Problem:
    """Filter a list of numbers, change each one, and reduce; told in a sentence with two asserts."""
    name = f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}"
    test, k = rng.choice(tuple(TESTS)), rng.randint(2, 7)
    change, j = rng.choice(tuple(CHANGES)), rng.randint(2, 15)
    reduce = rng.choice(("sum", "list", "maximum", "minimum"))
    wanted = "a list" if reduce == "list" else f"the {reduce}"
    text = f"Write a function to return {wanted} of all numbers {test} {k}, each {change} {j}."
    response = _list_program(rng, name, f"{TESTS[test]} {k}", f"{CHANGES[change]} {j}", reduce)
    function = _run(response, name)
    kept = [n for n in range(10) if eval(f"{n} {TESTS[test]} {k}")]
    asserts = []
    for _ in range(3):
        numbers = [rng.choice(kept), *rng.sample(range(10), 2)]
        rng.shuffle(numbers)
        asserts.append(f"assert {name}({numbers}) == {function(numbers)}")
    question = f"{text}\n{asserts[0]}"  # one assert tells the function's name; the others stay for scoring
    row = {"text": question, "code": response, "test_list": asserts, "test_setup_code": "", "challenge_test_list": []}
    return Problem(f"mbpp {reduce} {test} {k} {change} {j}", question, response, row)


def _list_program(rng: Random, name: str, condition: str, change: str, reduce: str) -> str:
    numbers, e, out = rng.choice(LISTS), rng.choice(ELEMENTS), rng.choice(RESULTS)
    each = f"{e} {change}"
    some = f"{each} for {e} in {numbers} if {e} {condition}"
    call = {"sum": "sum", "maximum": "max", "minimum": "min"}.get(reduce)
    returned = f"return {call}({out})" if call else f"return {out}"
    style = rng.choice(("return", "name", "loop"))
    if style == "return":
        lines = [f"return {call}({some})" if call else f"return [{some}]"]
    elif style == "name":
        lines = [f"{out} = [{some}]", returned]
    else:
        loop = [f"for {e} in {numbers}:", f"    if {e} {condition}:"]
        if reduce == "sum":
            lines = [f"{out} = 0", *loop, f"        {out} += {each}", f"return {out}"]
        else:
            lines = [f"{out} = []", *loop, f"        {out}.append({each})", returned]
    return f"def {name}({numbers}):\n" + "".join(f"    {line}\n" for line in lines)


def _run(code: str, name: str) -> Any:
    """The function that our own generated code defines."""
    scope: dict[str, Any] = {}
    exec(code, scope)
    return scope[name]
