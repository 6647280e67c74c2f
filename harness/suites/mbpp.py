"""MBPP: a task in words with asserts, 3 solved ones before each. Generated ones: filter a list,
change, reduce.

`code-long` and `code-hard`, generated alone, are as long as real ones. A problem has many correct
responses, in expressions, statements and names. One that mixes two (assigns `total`, returns
`result`) is wrong: the factorization error that generated programs show. Expected values come from
running a reference response.
"""

from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from harness.suites.spec import Generator, Problem, Row, Suite, human, json_lines

RESULTS = ("total", "result", "value", "out", "res")
VERBS = ("calc", "find", "get", "make", "solve", "work")
NOUNS = ("amount", "level", "number", "rate", "score", "sum")
ELEMENTS = ("v", "e", "item", "num")
LISTS = ("nums", "data", "xs", "values")
TESTS = {"above": ">", "below": "<", "at least": ">=", "at most": "<=", "other than": "!="}
CHANGES = {"plus": "+", "minus": "-", "times": "*"}
FIRST_TEST_ROW = 10  # OpenCompass takes rows 10 to 509 of mbpp.jsonl as the test set
PARTS = ("find", "make", "calc", "solve")  # how the names of the four functions begin
MORE = ("find", "make", "pick", "build", "calc", "solve")  # and of the six
Names = tuple[str, str, str]  # of the list, of its elements, and of what is returned
REDUCED = {"sum": "sum", "maximum": "max", "minimum": "min"}


def defined(name: str, parameters: str, lines: list[str]) -> str:
    """A function of these lines."""
    return f"def {name}({parameters}):\n" + "".join(f"    {line}\n" for line in lines)


def function_of(code: str, name: str) -> Any:
    """The function that generated code defines."""
    scope: dict[str, Any] = {}
    exec(code, scope)
    return scope[name]


def draw(rng: Random) -> Problem:
    """Filter a list of numbers, change each one, and reduce; a sentence with two asserts."""
    name = f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}"
    test = rng.choice(tuple(TESTS))
    k = rng.randint(2, 7)
    change = rng.choice(tuple(CHANGES))
    j = rng.randint(2, 15)
    reduce = rng.choice(("sum", "list", "maximum", "minimum"))
    wanted = "a list" if reduce == "list" else f"the {reduce}"
    text = f"Write a function to return {wanted} of all numbers {test} {k}, each {change} {j}."
    response = _list_program(rng, name, f"{TESTS[test]} {k}", f"{CHANGES[change]} {j}", reduce)
    function = function_of(response, name)
    kept = [n for n in range(10) if eval(f"{n} {TESTS[test]} {k}")]
    asserts = []
    for _ in range(3):
        numbers = [rng.choice(kept), *rng.sample(range(10), 2)]
        rng.shuffle(numbers)
        asserts.append(f"assert {name}({numbers}) == {function(numbers)}")
    return problem_of(f"mbpp {reduce} {test} {k} {change} {j}", text, response, asserts)


def problem_of(key: str, text: str, response: str, asserts: list[str]) -> Problem:
    """A problem in MBPP's format: one assert tells the function's name, the others stay for
    scoring."""
    question = f"{text}\n{asserts[0]}"
    row = {
        "text": question,
        "code": response,
        "test_list": asserts,
        "test_setup_code": "",
        "challenge_test_list": [],
    }
    return Problem(key, question, response, row)


def _list_program(rng: Random, name: str, condition: str, change: str, reduce: str) -> str:
    numbers = rng.choice(LISTS)
    e = rng.choice(ELEMENTS)
    out = rng.choice(RESULTS)
    each = f"{e} {change}"
    some = f"{each} for {e} in {numbers} if {e} {condition}"
    call = REDUCED.get(reduce)
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
    return defined(name, numbers, lines)


def draw_long(rng: Random, suite: str = "code-long", parts: tuple[str, ...] = PARTS) -> Problem:
    """Keep some numbers, change each, perhaps again, reduce them, and all in turn; a sentence each,
    with two asserts.

    parts: how the functions' names begin; the last two reduce, and call the others.
    """
    *steps, reduce, solve = (f"{part}_{rng.choice(NOUNS)}" for part in parts)
    pairs = list(zip(steps[::2], steps[1::2], strict=True))
    tests = tuple(TESTS)
    changes = tuple(CHANGES)
    drawn = [
        (rng.choice(tests), rng.randint(2, 7), rng.choice(changes), rng.randint(2, 15))
        for _ in pairs
    ]
    kind = rng.choice(tuple(REDUCED))
    sentences = [
        f"Write a function {keep} to return a list of all numbers {test} {k}. "
        f"Write a function {change} to return a list of all numbers, each {operator} {j}. "
        for (keep, change), (test, k, operator, j) in zip(pairs, drawn, strict=True)
    ]
    text = (
        f"{''.join(sentences)}Write a function {reduce} to return the {kind} of all numbers. "
        f"Write a function {solve} to return {' of '.join((reduce, *steps[::-1]))}."
    )
    names = rng.choice(LISTS), rng.choice(ELEMENTS), rng.choice(RESULTS)
    written = []
    for (keep, change), (test, k, operator, j) in zip(pairs, drawn, strict=True):
        written.append(_function(rng, keep, names, "{e}", f" if {{e}} {TESTS[test]} {k}"))
        written.append(_function(rng, change, names, f"{{e}} {CHANGES[operator]} {j}", ""))
    written += [_reducer(rng, reduce, names, kind), _solver(rng, solve, names, (*steps, reduce))]
    response = "\n".join(written)
    function = function_of(response, solve)
    test, k, _, _ = drawn[0]
    kept = [n for n in range(10) if eval(f"{n} {TESTS[test]} {k}")]
    lists = [[rng.choice(kept), *rng.sample(range(10), 2)] for _ in range(3)]
    try:
        asserts = [f"assert {solve}({numbers}) == {function(numbers)}" for numbers in lists]
    except (ValueError, IndexError):  # nothing was kept the second time
        return draw_long(rng, suite, parts)
    key = " ".join(f"{test} {k} {operator} {j}" for test, k, operator, j in drawn)
    return problem_of(f"{suite} {kind} {key}", text, response, asserts)


def _function(rng: Random, name: str, names: Names, value: str, condition: str) -> str:
    """A list of a value of each element that meets a condition, by a comprehension or a loop."""
    numbers, e, out = names
    each = value.format(e=e)
    where = condition.format(e=e)
    some = f"[{each} for {e} in {numbers}{where}]"
    appended = f"{out}.append({each})"
    inner = [f"   {where}:", f"        {appended}"] if where else [f"    {appended}"]
    styles = ([f"return {some}"], [f"{out} = {some}", f"return {out}"])
    loop = [f"{out} = []", f"for {e} in {numbers}:", *inner, f"return {out}"]
    return defined(name, numbers, rng.choice((*styles, loop)))


def _reducer(rng: Random, name: str, names: Names, kind: str) -> str:
    """A sum, maximum or minimum, by a call or step by step."""
    numbers, e, out = names
    call = f"{REDUCED[kind]}({numbers})"
    begin, step = {
        "sum": ("0", f"{out} += {e}"),
        "maximum": (f"{numbers}[0]", f"{out} = max({out}, {e})"),
        "minimum": (f"{numbers}[0]", f"{out} = min({out}, {e})"),
    }[kind]
    loop = [f"{out} = {begin}", f"for {e} in {numbers}:", f"    {step}", f"return {out}"]
    return defined(
        name, numbers, rng.choice(([f"return {call}"], [f"{out} = {call}", f"return {out}"], loop))
    )


def _solver(rng: Random, name: str, names: Names, functions: tuple[str, ...]) -> str:
    """The functions in turn, in one expression or a line each."""
    numbers, _, out = names
    first, *others = functions
    nested = f"{first}({numbers})"
    for each in others:
        nested = f"{each}({nested})"
    lines = [f"{out} = {first}({numbers})", *(f"{out} = {each}({out})" for each in others[:-1])]
    return defined(
        name, numbers, rng.choice(([f"return {nested}"], [*lines, f"return {others[-1]}({out})"]))
    )


def as_test_rows(rows: list[Row]) -> str:
    """Rows as MBPP's file: the test rows follow FIRST_TEST_ROW others, and every row has a
    task_id."""
    rows = [rows[number % len(rows)] for number in range(-FIRST_TEST_ROW, len(rows))]
    return json_lines([{"task_id": number, **row} for number, row in enumerate(rows, 1)])


GENERATOR = Generator(
    draw=draw,
    file="mbpp/mbpp.jsonl",
    content=as_test_rows,
    dataset="opencompass.datasets.MBPPDataset",
    columns=("text", "test_list"),
    output="test_list_2",
    rounds=human("{text}"),
    evaluation={"evaluator": {"type": "opencompass.datasets.MBPPEvaluator"}},
    length=64,
)
SUITE = Suite(
    name="mbpp",
    title="MBPP",
    configuration="mbpp_gen",
    of_base=(
        "judges a response of a base model that goes on with another task by that task's program"
    ),
    file="mbpp/mbpp.jsonl",
    lengths={"gen_length": 256, "block_length": 256, "options": {"confidence_eos_eot_inf": True}},
    generator=GENERATOR,
    executes=True,
)
LONG_ONES = replace(
    GENERATOR, draw=draw_long, file="code-long/mbpp.jsonl", length=160, block_length=32
)
LONG = Suite(
    "code-long",
    "Code-long",
    {"gen_length": 256, "block_length": 256},
    generator=LONG_ONES,
    executes=True,
)
HARD = Suite(
    "code-hard",
    "Code-hard",
    LONG.lengths,
    generator=replace(
        LONG_ONES,
        draw=partial(draw_long, suite="code-hard", parts=MORE),
        file="code-hard/mbpp.jsonl",
        length=256,
    ),
    executes=True,
)
