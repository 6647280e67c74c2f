"""Programs of several functions, as long as real ones: some that handle a list of numbers, and one that calls them.

Generated alone, in MBPP's format: four functions, or six, which are harder.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random

from harness.suites import mbpp
from harness.suites.mbpp import CHANGES, ELEMENTS, LISTS, TESTS, problem_of
from harness.suites.programs import NOUNS, RESULTS, defined, function_of
from harness.suites.spec import Problem, Suite

PARTS = ("find", "make", "calc", "solve")  # how the names of the four functions begin
MORE = ("find", "make", "pick", "build", "calc", "solve")  # and of the six
Names = tuple[str, str, str]  # of the list, of its elements, and of what is returned
REDUCED = {"sum": "sum", "maximum": "max", "minimum": "min"}


def draw(rng: Random, suite: str = "code-long", parts: tuple[str, ...] = PARTS) -> Problem:
    """Keep some numbers, change each, perhaps again, reduce them, and all in turn; a sentence each, with two asserts.

    parts: how the functions' names begin, the last two those that reduce and that call the others.
    """
    *steps, reduce, solve = (f"{part}_{rng.choice(NOUNS)}" for part in parts)
    pairs = list(zip(steps[::2], steps[1::2], strict=True))
    drawn = [_drawn_pair(rng) for _ in pairs]
    kind = rng.choice(tuple(REDUCED))
    told = [
        f"Write a function {keep} to return a list of all numbers {test} {k}. "
        f"Write a function {change} to return a list of all numbers, each {operator} {j}. "
        for (keep, change), (test, k, operator, j) in zip(pairs, drawn, strict=True)
    ]
    text = (
        f"{''.join(told)}Write a function {reduce} to return the {kind} of all numbers. "
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
        return draw(rng, suite, parts)
    key = " ".join(f"{test} {k} {operator} {j}" for test, k, operator, j in drawn)
    return problem_of(f"{suite} {kind} {key}", text, response, asserts)


def _drawn_pair(rng: Random) -> tuple[str, int, str, int]:
    """A test and its number, a change and its number."""
    test, k = rng.choice(tuple(TESTS)), rng.randint(2, 7)
    return test, k, rng.choice(tuple(CHANGES)), rng.randint(2, 15)


def _function(rng: Random, name: str, names: Names, value: str, condition: str) -> str:
    """A list of a value of each element that meets a condition, by a comprehension or a loop."""
    numbers, e, out = names
    each, where = value.format(e=e), condition.format(e=e)
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
    return defined(name, numbers, rng.choice(([f"return {call}"], [f"{out} = {call}", f"return {out}"], loop)))


def _solver(rng: Random, name: str, names: Names, functions: tuple[str, ...]) -> str:
    """The functions in turn, in one expression or a line each."""
    numbers, _, out = names
    first, *others = functions
    nested = f"{first}({numbers})"
    for each in others:
        nested = f"{each}({nested})"
    lines = [f"{out} = {first}({numbers})", *(f"{out} = {each}({out})" for each in others[:-1])]
    return defined(name, numbers, rng.choice(([f"return {nested}"], [*lines, f"return {others[-1]}({out})"])))


GENERATOR = replace(mbpp.GENERATOR, draw=draw, file="code-long/mbpp.jsonl", length=160, block_length=32)
SUITE = Suite("code-long", "Code-long", {"gen_length": 256, "block_length": 256}, generator=GENERATOR, executes=True)
HARD = Suite(
    "code-hard",
    "Code-hard",
    SUITE.lengths,
    generator=replace(
        GENERATOR, draw=partial(draw, suite="code-hard", parts=MORE), file="code-hard/mbpp.jsonl", length=256
    ),
    executes=True,
)
