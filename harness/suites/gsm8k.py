"""GSM8K: word problems, 4 solved ones before each. Generated ones have two steps and an answer up to 34."""

from __future__ import annotations

import re
from random import Random

from harness.suites.spec import BOXED, Generator, Problem, Suite, Training, human

NAMES = ("Anna", "Ben", "Carla", "Dan", "Eva", "Finn", "Gina", "Hugo", "Ida", "Jan", "Kim", "Leo")
ITEMS = ("apples", "books", "cards", "coins", "eggs", "pens", "shells", "stamps", "stones", "toys")
BOXES = ("bags", "boxes", "jars", "packs")
GAINS = ("buys", "finds", "gets", "wins")
LOSSES = ("drops", "gives", "loses", "sells")


def draw(rng: Random) -> Problem:
    """A word problem of two steps, its answer a number up to 34."""
    name, other = rng.sample(NAMES, 2)
    items = rng.choice(ITEMS)
    kind = rng.choice(("events", "boxes", "together"))
    if kind == "events":
        a, b = rng.randint(3, 12), rng.randint(2, 9)
        c = rng.randint(2, min(9, a + b - 1))
        question = (
            f"{name} has {a} {items}. {name} {rng.choice(GAINS)} {b} more and {rng.choice(LOSSES)} {c}. "
            f"How many {items} does {name} have?"
        )
        gain_first = [equation(rng, a, "+", b), f"{a + b} - {c} = {a + b - c}"]
        loss_first = [f"{a} - {c} = {a - c}", equation(rng, a - c, "+", b)]
        steps = rng.choice((gain_first, loss_first)) if a > c else gain_first
        answer = a + b - c
    elif kind == "boxes":
        a, b, c = rng.randint(2, 5), rng.randint(2, 5), rng.randint(2, 9)
        question = (
            f"{name} has {a} {rng.choice(BOXES)} of {b} {items} each and {rng.choice(GAINS)} {c} more. "
            f"How many {items} does {name} have?"
        )
        steps = [equation(rng, a, "*", b), equation(rng, a * b, "+", c)]
        answer = a * b + c
    else:
        a, b, c = rng.randint(2, 9), rng.randint(2, 9), 0
        question = f"{name} has {a} {items}. {other} has {b} more than {name}. How many {items} do they have together?"
        steps = [equation(rng, a, "+", b), equation(rng, a, "+", a + b)]
        answer = a + a + b
    response = _word_solution(rng, name, items, steps, answer)
    row = {"question": question, "answer": f"{', '.join(steps)}\n#### {answer}"}
    return Problem(f"gsm8k {kind} {a} {b} {c}", question, response, row)


def equation(rng: Random, a: int, operator: str, b: int) -> str:
    """A sum or product in either order, with its value."""
    left, right = (a, b) if rng.random() < 0.5 else (b, a)
    return f"{left} {operator} {right} = {a + b if operator == '+' else a * b}"


def _word_solution(rng: Random, name: str, items: str, steps: list[str], answer: int) -> str:
    first, second = steps
    body = rng.choice(
        (
            f"First, {first}. Then {second}.",
            f"We compute {first} and {second}.",
            f"Start with {first}. Next comes {second}.",
            f"{name} gets {first} {items}, then {second}.",
        )
    )
    return f"{body} {word_ending(rng, items, answer)}"


def word_ending(rng: Random, items: str, answer: int) -> str:
    """The answer in one of four wordings."""
    return rng.choice(
        (
            f"The answer is {answer}.",
            f"So there are {answer} {items}.",
            f"Hence it is {answer}.",
            f"#### {answer}",
        )
    )


def without_annotations(answer: str) -> str:
    """An answer of the train file without its calculator annotations, <<48/2=24>>."""
    return re.sub(r"<<[^>]*>>", "", answer)


GENERATOR = Generator(
    draw=draw,
    file="gsm8k/test.jsonl",
    train_file="train.jsonl",  # the loader wants it; nothing reads its rows
    dataset="opencompass.datasets.GSM8KDataset",
    by_folder=True,
    columns=("question",),
    output="answer",
    rounds=human("{question}"),
    evaluation={
        "evaluator": {"type": "opencompass.datasets.Gsm8kEvaluator"},
        "pred_postprocessor": {"type": "opencompass.datasets.gsm8k_postprocess"},
        "dataset_postprocessor": {"type": "opencompass.datasets.gsm8k_dataset_postprocess"},
    },
    length=48,
)
SUITE = Suite(
    name="gsm8k",
    title="GSM8K",
    configuration="gsm8k_gen_1d7fe4",
    file="gsm8k/test.jsonl",
    lengths={"gen_length": 256, "block_length": 8},
    generator=GENERATOR,
    training=Training("question", "answer", "{question}" + BOXED, without_annotations),
)
