"""Word problems as long as real ones, generated alone: six to ten equations and no amount above 12, or harder ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random

from harness.suites import gsm8k
from harness.suites.gsm8k import BOXES, GAINS, ITEMS, LOSSES, NAMES, equation, word_ending
from harness.suites.spec import Problem, Suite


def draw(
    rng: Random,
    suite: str = "gsm8k-long",
    equations: Sequence[int] = range(6, 11),
    most: int = 12,
    changes: tuple[int, int] = (2, 6),
    boxes_of: tuple[int, int] = (2, 4),
) -> Problem:
    """One person's amount through gains, losses and boxes of several, told in order.

    equations: how many there may be. most: no amount is above it. changes, boxes_of: the least and the most that comes
    or goes, and that is in each of two or three boxes.
    """
    name, items = rng.choice(NAMES), rng.choice(ITEMS)
    wanted = rng.choice(equations)
    amount = rng.randint(3, 9)
    story, key = [f"{name} has {amount} {items}."], [str(amount)]
    steps: list[str] = []
    while len(steps) < wanted:
        kind = rng.choice(("gain", "loss", "boxes") if wanted - len(steps) > 1 else ("gain", "loss"))
        boxes, each = rng.randint(2, 3), rng.randint(*boxes_of)
        change = boxes * each if kind == "boxes" else rng.randint(*changes)
        if kind == "loss" and amount > change:
            story.append(f"{name} {rng.choice(LOSSES)} {change}.")
            steps.append(f"{amount} - {change} = {amount - change}")
            amount -= change
        elif kind != "loss" and amount + change <= most:
            if kind == "boxes":
                story.append(f"{name} {rng.choice(GAINS)} {boxes} {rng.choice(BOXES)} of {each} {items} each.")
                steps.append(equation(rng, boxes, "*", each))
            else:
                story.append(f"{name} {rng.choice(GAINS)} {change} more.")
            steps.append(equation(rng, amount, "+", change))
            amount += change
        else:
            continue
        key.append(f"{kind} {boxes} {each}" if kind == "boxes" else f"{kind} {change}")
    question = " ".join([*story, f"How many {items} does {name} have?"])
    response = f"{_told(rng, name, items, steps)} {word_ending(rng, items, amount)}"
    row = {"question": question, "answer": f"{', '.join(steps)}\n#### {amount}"}
    return Problem(f"{suite} {', '.join(key)}", question, response, row)


def _told(rng: Random, name: str, items: str, steps: list[str]) -> str:
    """The equations in sentences, each worded by itself: what comes next cannot be known from far away."""
    first, *others = steps
    told = [rng.choice((f"First, {first}.", f"Start with {first}.", f"We compute {first}."))]
    told += [rng.choice((f"Then {each}.", f"Next comes {each}.", f"{name} gets {each} {items}.")) for each in others]
    return " ".join(told)


GENERATOR = replace(gsm8k.GENERATOR, draw=draw, file="gsm8k-long/test.jsonl", length=128, block_length=32)
SUITE = Suite("gsm8k-long", "GSM8K-long", {"gen_length": 256, "block_length": 8}, generator=GENERATOR)
HARD = Suite(
    "gsm8k-hard",
    "GSM8K-hard",
    SUITE.lengths,
    generator=replace(
        GENERATOR,
        draw=partial(draw, suite="gsm8k-hard", equations=range(9, 13), most=30, changes=(2, 12), boxes_of=(2, 6)),
        file="gsm8k-hard/test.jsonl",
        length=160,
    ),
)
