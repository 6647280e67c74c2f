"""Word problems of six to ten equations, as long as real ones. Generated alone; every amount stays below 25."""

from __future__ import annotations

from random import Random

from harness.suites import gsm8k
from harness.suites.gsm8k import BOXES, GAINS, ITEMS, LOSSES, NAMES, equation, word_ending
from harness.suites.spec import Generator, Problem, Suite, human

EQUATIONS = range(6, 11)
MOST = 24


def draw(rng: Random) -> Problem:
    """One person's amount through gains, losses and boxes of several, told in order."""
    name, items = rng.choice(NAMES), rng.choice(ITEMS)
    wanted = rng.choice(EQUATIONS)
    amount = rng.randint(3, 12)
    story, key = [f"{name} has {amount} {items}."], [str(amount)]
    steps: list[str] = []
    while len(steps) < wanted:
        kind = rng.choice(("gain", "loss", "boxes") if wanted - len(steps) > 1 else ("gain", "loss"))
        boxes, each = rng.randint(2, 3), rng.randint(2, 4)
        change = boxes * each if kind == "boxes" else rng.randint(2, 6)
        if kind == "loss" and amount > change:
            story.append(f"{name} {rng.choice(LOSSES)} {change}.")
            steps.append(f"{amount} - {change} = {amount - change}")
            amount -= change
        elif kind != "loss" and amount + change <= MOST:
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
    return Problem(f"gsm8k-long {', '.join(key)}", question, response, row)


def _told(rng: Random, name: str, items: str, steps: list[str]) -> str:
    """The equations in sentences, each worded by itself: what comes next cannot be known from far away."""
    first, *others = steps
    told = [rng.choice((f"First, {first}.", f"Start with {first}.", f"We compute {first}."))]
    told += [rng.choice((f"Then {each}.", f"Next comes {each}.", f"{name} gets {each} {items}.")) for each in others]
    return " ".join(told)


SUITE = Suite(
    name="gsm8k-long",
    title="GSM8K-long",
    lengths={"gen_length": 256, "block_length": 8},
    generator=Generator(
        draw=draw,
        file="gsm8k-long/test.jsonl",
        train_file="train.jsonl",
        dataset="opencompass.datasets.GSM8KDataset",
        by_folder=True,
        columns=("question",),
        output="answer",
        rounds=human("{question}"),
        evaluation=gsm8k.EVALUATION,
        length=128,
    ),
)
