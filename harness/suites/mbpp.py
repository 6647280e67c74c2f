"""MBPP: a task in words with asserts, with 3 solved ones in the prompt. Generated problems filter a
list, change its numbers and reduce it.

`code-long` and `code-hard` are only generated, and as long as real problems. A problem has many
correct responses, which differ in expressions, statements and names. A response that mixes two of
them (assigns `total`, returns `result`) is wrong: this is how the factorization error shows in
programs. Expected values come from running a reference response.
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
# OpenCompass takes rows 10 to 509 of mbpp.jsonl as the test set.
FIRST_TEST_ROW = 10
# The beginnings of the names of the four functions of code-long, ...
LONG_PARTS = ("find", "make", "calc", "solve")
# ... and of the six functions of code-hard.
HARD_PARTS = ("find", "make", "pick", "build", "calc", "solve")
# Names of the list, of its elements, and of the returned value.
Names = tuple[str, str, str]
REDUCED = {"sum": "sum", "maximum": "max", "minimum": "min"}


def defined(name: str, parameters: str, lines: list[str]) -> str:
    """The source of a function with these lines as its body."""
    return f"def {name}({parameters}):\n" + "".join(f"    {line}\n" for line in lines)


def function_of(code: str, name: str) -> Any:
    """Run generated code, and return the function of this name that it defines."""
    scope: dict[str, Any] = {}
    exec(code, scope)
    return scope[name]


def draw(rng: Random) -> Problem:
    """Draw a task in one sentence: filter a list of numbers, change each one, and reduce them."""
    name = f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}"
    test = rng.choice(tuple(TESTS))
    k = rng.randint(2, 7)
    change = rng.choice(tuple(CHANGES))
    j = rng.randint(2, 15)
    reduce = rng.choice(("sum", "list", "maximum", "minimum"))
    returned = "a list" if reduce == "list" else f"the {reduce}"
    text = f"Write a function to return {returned} of all numbers {test} {k}, each {change} {j}."
    response = _list_program(rng, name, f"{TESTS[test]} {k}", f"{CHANGES[change]} {j}", reduce)
    function = function_of(response, name)
    # Every list has a number that passes the test: there is no maximum of nothing.
    passing = [n for n in range(10) if eval(f"{n} {TESTS[test]} {k}")]
    asserts = []
    for _ in range(3):
        numbers = [rng.choice(passing), *rng.sample(range(10), 2)]
        rng.shuffle(numbers)
        asserts.append(f"assert {name}({numbers}) == {function(numbers)}")
    return problem_of(f"mbpp {reduce} {test} {k} {change} {j}", text, response, asserts)


def problem_of(key: str, text: str, response: str, asserts: list[str]) -> Problem:
    """A problem in MBPP's format.

    Args:
        key: see `Problem`.
        text: the task in words.
        response: a correct program.
        asserts: the first one is shown, for the function's name; all are for scoring.
    """
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
    value = f"{e} {change}"
    some = f"{value} for {e} in {numbers} if {e} {condition}"
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
            lines = [f"{out} = 0", *loop, f"        {out} += {value}", f"return {out}"]
        else:
            lines = [f"{out} = []", *loop, f"        {out}.append({value})", returned]
    return defined(name, numbers, lines)


def draw_long(
    rng: Random, suite: str = "code-long", parts: tuple[str, ...] = LONG_PARTS
) -> Problem:
    """Draw a task of several functions, a sentence for each: pairs that filter a list and change
    its numbers, one that reduces it, and one that calls the others in turn.

    Args:
        rng: the source of all draws.
        suite: its name begins the key.
        parts: the beginnings of the functions' names; the last two reduce, and call the others.
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
    # One choice for all functions, so that a program is consistent over its whole length.
    names = rng.choice(LISTS), rng.choice(ELEMENTS), rng.choice(RESULTS)
    functions = []
    for (keep, change), (test, k, operator, j) in zip(pairs, drawn, strict=True):
        functions.append(_function(rng, keep, names, "{e}", f" if {{e}} {TESTS[test]} {k}"))
        functions.append(_function(rng, change, names, f"{{e}} {CHANGES[operator]} {j}", ""))
    functions += [_reducer(rng, reduce, names, kind), _solver(rng, solve, names, (*steps, reduce))]
    response = "\n".join(functions)
    function = function_of(response, solve)
    test, k, _, _ = drawn[0]
    passing = [n for n in range(10) if eval(f"{n} {TESTS[test]} {k}")]
    lists = [[rng.choice(passing), *rng.sample(range(10), 2)] for _ in range(3)]
    try:
        asserts = [f"assert {solve}({numbers}) == {function(numbers)}" for numbers in lists]
    # The second filter kept nothing, and a maximum or minimum of nothing was asked for.
    except (ValueError, IndexError):
        return draw_long(rng, suite, parts)
    key = " ".join(f"{test} {k} {operator} {j}" for test, k, operator, j in drawn)
    return problem_of(f"{suite} {kind} {key}", text, response, asserts)


def _function(rng: Random, name: str, names: Names, value: str, condition: str) -> str:
    """A function that lists a value of each element that meets a condition, by a comprehension or a
    loop. value, condition: templates, in which {e} is the element."""
    numbers, e, out = names
    element = value.format(e=e)
    test = condition.format(e=e)
    some = f"[{element} for {e} in {numbers}{test}]"
    appended = f"{out}.append({element})"
    inner = [f"   {test}:", f"        {appended}"] if test else [f"    {appended}"]
    styles = ([f"return {some}"], [f"{out} = {some}", f"return {out}"])
    loop = [f"{out} = []", f"for {e} in {numbers}:", *inner, f"return {out}"]
    return defined(name, numbers, rng.choice((*styles, loop)))


def _reducer(rng: Random, name: str, names: Names, kind: str) -> str:
    """A function that returns a sum, maximum or minimum, by a call or step by step."""
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
    """A function that calls others in turn, in one expression or a line each."""
    numbers, _, out = names
    first, *others = functions
    nested = f"{first}({numbers})"
    for other in others:
        nested = f"{other}({nested})"
    lines = [f"{out} = {first}({numbers})", *(f"{out} = {other}({out})" for other in others[:-1])]
    return defined(
        name, numbers, rng.choice(([f"return {nested}"], [*lines, f"return {others[-1]}({out})"]))
    )


def as_test_rows(rows: list[Row]) -> str:
    """Rows in the format of MBPP's file: every row has a task_id, and FIRST_TEST_ROW rows precede
    those of the test set."""
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
    base_fault=(
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
        draw=partial(draw_long, suite="code-hard", parts=HARD_PARTS),
        file="code-hard/mbpp.jsonl",
        length=256,
    ),
    executes=True,
)
