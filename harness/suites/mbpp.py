"""MBPP: a task in words with asserts, 3 solved ones before each. Generated ones: filter a list, change, reduce."""

from __future__ import annotations

from random import Random

from harness.suites.programs import NOUNS, RESULTS, VERBS, defined, function_of
from harness.suites.spec import Generator, Problem, Row, Suite, human, json_lines

ELEMENTS = ("v", "e", "item", "num")
LISTS = ("nums", "data", "xs", "values")
TESTS = {"above": ">", "below": "<", "at least": ">=", "at most": "<=", "other than": "!="}
CHANGES = {"plus": "+", "minus": "-", "times": "*"}
FIRST_TEST_ROW = 10  # OpenCompass takes rows 10 to 509 of mbpp.jsonl as the test set


def draw(rng: Random) -> Problem:
    """Filter a list of numbers, change each one, and reduce; told in a sentence with two asserts."""
    name = f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}"
    test, k = rng.choice(tuple(TESTS)), rng.randint(2, 7)
    change, j = rng.choice(tuple(CHANGES)), rng.randint(2, 15)
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
    """A problem in MBPP's format: one assert tells the function's name, the others stay for scoring."""
    question = f"{text}\n{asserts[0]}"
    row = {"text": question, "code": response, "test_list": asserts, "test_setup_code": "", "challenge_test_list": []}
    return Problem(key, question, response, row)


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
    return defined(name, numbers, lines)


def as_test_rows(rows: list[Row]) -> str:
    """Rows as MBPP's file: the test rows stand behind FIRST_TEST_ROW others, and every row has a task_id."""
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
    evaluation={"evaluator": {"type": "harness.sandbox.evaluators.SandboxedMBPP"}},
    length=64,
)
SUITE = Suite(
    name="mbpp",
    title="MBPP",
    configuration="mbpp_gen",
    file="mbpp/mbpp.jsonl",
    lengths={"gen_length": 256, "block_length": 256, "options": {"confidence_eos_eot_inf": True}},
    generator=GENERATOR,
    executes=True,
)
