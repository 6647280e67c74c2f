"""MBPP: a task in words with asserts. Generated ones filter a list of numbers, change each and reduce."""

from __future__ import annotations

from random import Random
from typing import Any

from harness.suites.programs import NOUNS, RESULTS, VERBS, function_of
from harness.suites.spec import Generator, Problem, Rounds, Row, Suite, human, json_lines

ELEMENTS = ("v", "e", "item", "num")
LISTS = ("nums", "data", "xs", "values")
TESTS = {"above": ">", "below": "<", "at least": ">=", "at most": "<=", "other than": "!="}
CHANGES = {"plus": "+", "minus": "-", "times": "*"}
FIRST_TEST_ROW = 10  # OpenCompass takes rows 10 to 509 of mbpp.jsonl as the test set
EXPERT = "You are an expert Python programmer, and here is your task: "
PASS_THESE = " Your code should pass these tests:\n\n "
# The three solved tasks of the MBPP prompt (Austin et al., arXiv 2108.07732, tasks 2 to 4), in OpenCompass's wording.
SHOTS = (
    (
        "Write a function to find the similar elements from the given two tuple lists.",
        "assert similar_elements((3, 4, 5, 6),(5, 7, 4, 10)) == (4, 5)\n"
        "assert similar_elements((1, 2, 3, 4),(5, 4, 3, 7)) == (3, 4) \n"
        "assert similar_elements((11, 12, 14, 13),(17, 15, 14, 13)) == (13, 14) \n",
        "def similar_elements(test_tup1, test_tup2):\r\n"
        "  res = tuple(set(test_tup1) & set(test_tup2))\r\n"
        "  return (res)",
    ),
    (
        "Write a python function to identify non-prime numbers.",
        "assert is_not_prime(2) == False \nassert is_not_prime(10) == True \nassert is_not_prime(35) == True \n",
        "import math\r\ndef is_not_prime(n):\r\n    result = False\r\n"
        "    for i in range(2,int(math.sqrt(n)) + 1):\r\n        if n % i == 0:\r\n"
        "            result = True\r\n    return result",
    ),
    (
        "Write a function to find the largest integers from a given list of numbers using heap queue algorithm.",
        "assert heap_queue_largest( [25, 35, 22, 85, 14, 65, 75, 22, 58],3)==[85, 75, 65] \n"
        "assert heap_queue_largest( [25, 35, 22, 85, 14, 65, 75, 22, 58],2)==[85, 75] \n"
        "assert heap_queue_largest( [25, 35, 22, 85, 14, 65, 75, 22, 58],5)==[85, 75, 65, 58, 35] \n",
        "import heapq as hq\r\ndef heap_queue_largest(nums,n):\r\n"
        "  largest_nums = hq.nlargest(n, nums)\r\n  return largest_nums",
    ),
)


def few_shot() -> Rounds:
    """The prompt on the real file: three solved tasks, then the one to solve."""
    rounds = []
    for text, tests, code in SHOTS:
        rounds.append({"role": "HUMAN", "prompt": f"{EXPERT}{text}{PASS_THESE}{tests}"})
        rounds.append({"role": "BOT", "prompt": f"[BEGIN]\n '{code}' \n[DONE] \n\n "})
    return [*rounds, {"role": "HUMAN", "prompt": f"{EXPERT}{{text}}{PASS_THESE}{{test_list}}  \n"}]


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


def as_test_rows(rows: list[Row]) -> str:
    """Rows as MBPP's file: the test rows stand behind FIRST_TEST_ROW others, and every row has a task_id."""
    rows = [rows[number % len(rows)] for number in range(-FIRST_TEST_ROW, len(rows))]
    return json_lines([{"task_id": number, **row} for number, row in enumerate(rows, 1)])


EVALUATION: dict[str, Any] = {"evaluator": {"type": "harness.sandbox.evaluators.SandboxedMBPP"}}
SUITE = Suite(
    name="mbpp",
    title="MBPP",
    dataset="opencompass.datasets.MBPPDataset",
    file="mbpp/mbpp.jsonl",
    columns=("text", "test_list"),
    output="test_list_2",
    rounds=few_shot(),
    evaluation=EVALUATION,
    lengths={"gen_length": 256, "block_length": 256, "options": {"confidence_eos_eot_inf": True}},
    generator=Generator(draw, human("{text}"), EVALUATION, length=64, file=as_test_rows),
    executes=True,
)
