"""GSM8K: word problems, with 4 solved ones in the prompt. Generated problems have two steps and an
answer up to 34. `gsm8k-long` and `gsm8k-hard` are only generated, and as long as real problems."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random

from harness.suites.spec import BOXED, Generator, Problem, Suite, Training, human

NAMES = ("Anna", "Ben", "Carla", "Dan", "Eva", "Finn", "Gina", "Hugo", "Ida", "Jan", "Kim", "Leo")
ITEMS = ("apples", "books", "cards", "coins", "eggs", "pens", "shells", "stamps", "stones", "toys")
BOXES = ("bags", "boxes", "jars", "packs")
GAINS = ("buys", "finds", "gets", "wins")
LOSSES = ("drops", "gives", "loses", "sells")


def draw(rng: Random) -> Problem:
    """Draw a word problem of two steps, whose answer is a number up to 34."""
    name, other = rng.sample(NAMES, 2)
    items = rng.choice(ITEMS)
    kind = rng.choice(("events", "boxes", "together"))
    if kind == "events":
        a = rng.randint(3, 12)
        b = rng.randint(2, 9)
        c = rng.randint(2, min(9, a + b - 1))
        question = (
            f"{name} has {a} {items}. {name} {rng.choice(GAINS)} {b} more and {rng.choice(LOSSES)}"
            f" {c}. How many {items} does {name} have?"
        )
        # Both orders are right, unless the loss comes first and is too large.
        gain_first = [equation(rng, a, "+", b), f"{a + b} - {c} = {a + b - c}"]
        loss_first = [f"{a} - {c} = {a - c}", equation(rng, a - c, "+", b)]
        steps = rng.choice((gain_first, loss_first)) if a > c else gain_first
        answer = a + b - c
    elif kind == "boxes":
        a = rng.randint(2, 5)
        b = rng.randint(2, 5)
        c = rng.randint(2, 9)
        question = (
            f"{name} has {a} {rng.choice(BOXES)} of {b} {items} each and {rng.choice(GAINS)} {c}"
            f" more. How many {items} does {name} have?"
        )
        steps = [equation(rng, a, "*", b), equation(rng, a * b, "+", c)]
        answer = a * b + c
    else:
        a = rng.randint(2, 9)
        b = rng.randint(2, 9)
        c = 0
        question = (
            f"{name} has {a} {items}. {other} has {b} more than {name}. How many {items} do they"
            " have together?"
        )
        steps = [equation(rng, a, "+", b), equation(rng, a, "+", a + b)]
        answer = a + a + b
    # Several wordings: with one alone every decoder would score the same.
    first, second = steps
    body = rng.choice(
        (
            f"First, {first}. Then {second}.",
            f"We compute {first} and {second}.",
            f"Start with {first}. Next comes {second}.",
            f"{name} gets {first} {items}, then {second}.",
        )
    )
    response = f"{body} {word_ending(rng, items, answer)}"
    row = {"question": question, "answer": f"{', '.join(steps)}\n#### {answer}"}
    return Problem(f"gsm8k {kind} {a} {b} {c}", question, response, row)


def equation(rng: Random, a: int, operator: str, b: int) -> str:
    """A sum or product in either order, with its value."""
    left, right = (a, b) if rng.random() < 0.5 else (b, a)
    return f"{left} {operator} {right} = {a + b if operator == '+' else a * b}"


def word_ending(rng: Random, items: str, answer: int) -> str:
    """A sentence with the answer, in one of four wordings."""
    wordings = ("The answer is {}.", f"So there are {{}} {items}.", "Hence it is {}.", "#### {}")
    return rng.choice(wordings).format(answer)


def draw_long(
    rng: Random,
    suite: str = "gsm8k-long",
    equations: Sequence[int] = range(6, 11),
    most: int = 12,
    changes: tuple[int, int] = (2, 6),
    boxes_of: tuple[int, int] = (2, 4),
) -> Problem:
    """Draw a problem as long as a real one: one person's amount changes by gains, losses and boxes.

    Args:
        rng: the source of all draws.
        suite: its name begins the key.
        equations: the numbers of equations of which one is drawn.
        most: the largest amount.
        changes: the range of a gain or loss.
        boxes_of: the range of the number of items in a box.
    """
    name = rng.choice(NAMES)
    items = rng.choice(ITEMS)
    count = rng.choice(equations)
    amount = rng.randint(3, 9)
    story = [f"{name} has {amount} {items}."]
    key = [str(amount)]
    steps: list[str] = []
    while len(steps) < count:
        # Boxes take two equations.
        kind = rng.choice(("gain", "loss", "boxes") if count - len(steps) > 1 else ("gain", "loss"))
        boxes = rng.randint(2, 3)
        per_box = rng.randint(*boxes_of)
        change = boxes * per_box if kind == "boxes" else rng.randint(*changes)
        if kind == "loss" and amount > change:
            story.append(f"{name} {rng.choice(LOSSES)} {change}.")
            steps.append(f"{amount} - {change} = {amount - change}")
            amount -= change
        elif kind != "loss" and amount + change <= most:
            if kind == "boxes":
                story.append(
                    f"{name} {rng.choice(GAINS)} {boxes} {rng.choice(BOXES)} of {per_box} {items}"
                    " each."
                )
                steps.append(equation(rng, boxes, "*", per_box))
            else:
                story.append(f"{name} {rng.choice(GAINS)} {change} more.")
            steps.append(equation(rng, amount, "+", change))
            amount += change
        # The amount would become too small or too large: another change is drawn.
        else:
            continue
        key.append(f"{kind} {boxes} {per_box}" if kind == "boxes" else f"{kind} {change}")
    question = " ".join([*story, f"How many {items} does {name} have?"])
    # Each equation has a wording of its own, so that a position depends only on those near it.
    sentences = [
        rng.choice((f"First, {steps[0]}.", f"Start with {steps[0]}.", f"We compute {steps[0]}."))
    ]
    for step in steps[1:]:
        sentences.append(
            rng.choice((f"Then {step}.", f"Next comes {step}.", f"{name} gets {step} {items}."))
        )
    response = f"{' '.join(sentences)} {word_ending(rng, items, amount)}"
    row = {"question": question, "answer": f"{', '.join(steps)}\n#### {amount}"}
    return Problem(f"{suite} {', '.join(key)}", question, response, row)


GENERATOR = Generator(
    draw=draw,
    file="gsm8k/test.jsonl",
    # OpenCompass's loader opens it, and nothing reads its rows.
    train_file="train.jsonl",
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
    # GSM8K's answers have the calculator's annotations, such as <<2*3=6>>.
    training=Training(
        "question", "answer", "{question}" + BOXED, partial(re.sub, r"<<[^>]*>>", "")
    ),
)
LONG_ONES = replace(
    GENERATOR, draw=draw_long, file="gsm8k-long/test.jsonl", length=128, block_length=32
)
LONG = Suite(
    "gsm8k-long", "GSM8K-long", {"gen_length": 256, "block_length": 8}, generator=LONG_ONES
)
HARD = Suite(
    "gsm8k-hard",
    "GSM8K-hard",
    LONG.lengths,
    generator=replace(
        LONG_ONES,
        draw=partial(
            draw_long,
            suite="gsm8k-hard",
            equations=range(9, 13),
            most=30,
            changes=(2, 12),
            boxes_of=(2, 6),
        ),
        file="gsm8k-hard/test.jsonl",
        length=160,
    ),
)
