"""Programs of four functions, as long as real ones: three that handle a list of numbers, and one that calls them.

Generated alone, in MBPP's format.
"""

from __future__ import annotations

from random import Random

from harness.suites import mbpp
from harness.suites.mbpp import CHANGES, ELEMENTS, LISTS, TESTS, as_test_rows
from harness.suites.programs import NOUNS, RESULTS, VERBS, function_of
from harness.suites.spec import Generator, Problem, Suite, human

REDUCED = {"sum": "sum", "maximum": "max", "minimum": "min"}


def draw(rng: Random) -> Problem:
    """Keep some numbers, change each, reduce them, and all three in turn; told in a sentence each, with two asserts."""
    keep, change, reduce, solve = (f"{verb}_{rng.choice(NOUNS)}" for verb in rng.sample(VERBS, 4))
    test, k = rng.choice(tuple(TESTS)), rng.randint(2, 7)
    operator, j = rng.choice(tuple(CHANGES)), rng.randint(2, 15)
    kind = rng.choice(tuple(REDUCED))
    text = (
        f"Write a function {keep} to return a list of all numbers {test} {k}. "
        f"Write a function {change} to return a list of all numbers, each {operator} {j}. "
        f"Write a function {reduce} to return the {kind} of all numbers. "
        f"Write a function {solve} to return {reduce} of {change} of {keep}."
    )
    parts = [
        _function(rng, keep, "{e}", f" if {{e}} {TESTS[test]} {k}"),
        _function(rng, change, f"{{e}} {CHANGES[operator]} {j}", ""),
        _reducer(rng, reduce, kind),
        _solver(rng, solve, (keep, change, reduce)),
    ]
    response = "\n".join(parts)
    function = function_of(response, solve)
    kept = [n for n in range(10) if eval(f"{n} {TESTS[test]} {k}")]
    lists = [[rng.choice(kept), *rng.sample(range(10), 2)] for _ in range(3)]
    asserts = [f"assert {solve}({numbers}) == {function(numbers)}" for numbers in lists]
    question = f"{text}\n{asserts[0]}"
    row = {"text": question, "code": response, "test_list": asserts, "test_setup_code": "", "challenge_test_list": []}
    return Problem(f"code-long {kind} {test} {k} {operator} {j}", question, response, row)


def _names(rng: Random) -> tuple[str, str, str]:
    return rng.choice(LISTS), rng.choice(ELEMENTS), rng.choice(RESULTS)


def _defined(name: str, numbers: str, lines: list[str]) -> str:
    return f"def {name}({numbers}):\n" + "".join(f"    {line}\n" for line in lines)


def _function(rng: Random, name: str, value: str, condition: str) -> str:
    """A list of a value of each element that meets a condition, by a comprehension or a loop."""
    numbers, e, out = _names(rng)
    each, where = value.format(e=e), condition.format(e=e)
    some = f"[{each} for {e} in {numbers}{where}]"
    appended = f"{out}.append({each})"
    inner = [f"   {where}:", f"        {appended}"] if where else [f"    {appended}"]
    styles = ([f"return {some}"], [f"{out} = {some}", f"return {out}"])
    loop = [f"{out} = []", f"for {e} in {numbers}:", *inner, f"return {out}"]
    return _defined(name, numbers, rng.choice((*styles, loop)))


def _reducer(rng: Random, name: str, kind: str) -> str:
    """A sum, maximum or minimum, by a call or step by step."""
    numbers, e, out = _names(rng)
    call = f"{REDUCED[kind]}({numbers})"
    begin, step = {
        "sum": ("0", f"{out} += {e}"),
        "maximum": (f"{numbers}[0]", f"{out} = max({out}, {e})"),
        "minimum": (f"{numbers}[0]", f"{out} = min({out}, {e})"),
    }[kind]
    loop = [f"{out} = {begin}", f"for {e} in {numbers}:", f"    {step}", f"return {out}"]
    return _defined(name, numbers, rng.choice(([f"return {call}"], [f"{out} = {call}", f"return {out}"], loop)))


def _solver(rng: Random, name: str, functions: tuple[str, ...]) -> str:
    """The functions in turn, in one expression or a line each."""
    numbers, _, out = _names(rng)
    keep, change, reduce = functions
    nested = [f"return {reduce}({change}({keep}({numbers})))"]
    lines = [f"{out} = {keep}({numbers})", f"{out} = {change}({out})", f"return {reduce}({out})"]
    return _defined(name, numbers, rng.choice((nested, lines)))


SUITE = Suite(
    name="code-long",
    title="Code-long",
    lengths={"gen_length": 256, "block_length": 256},
    generator=Generator(
        draw=draw,
        file="code-long/mbpp.jsonl",
        content=as_test_rows,
        dataset="opencompass.datasets.MBPPDataset",
        columns=("text", "test_list"),
        output="test_list_2",
        rounds=human("{text}"),
        evaluation=mbpp.EVALUATION,
        length=160,
        block_length=32,
    ),
    executes=True,
)
