"""Generated text problems: two-step word problems (gsm8k), linear equations (math) and list operations (lists).

A generator takes a `random.Random` and returns one `Problem` with one correct response drawn from many: names, wordings
and the order of steps vary, because with one wording per problem every decoder scores the same. `lists` follows
ParallelBench (arXiv 2510.04767): copy, reverse, sort, replace, insert and shuffle, scored by the property asked for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

NAMES = ("Anna", "Ben", "Carla", "Dan", "Eva", "Finn", "Gina", "Hugo", "Ida", "Jan", "Kim", "Leo")
ITEMS = ("apples", "books", "cards", "coins", "eggs", "pens", "shells", "stamps", "stones", "toys")
BOXES = ("bags", "boxes", "jars", "packs")
GAINS = ("buys", "finds", "gets", "wins")
LOSSES = ("drops", "gives", "loses", "sells")
WORDS = (
    "ant",
    "bee",
    "cat",
    "cow",
    "dog",
    "elk",
    "fox",
    "hen",
    "jay",
    "owl",
    "pig",
    "ram",
    "rat",
    "seal",
    "wolf",
    "yak",
)


@dataclass(frozen=True)
class Problem:
    """One generated problem.

    key: what is asked, without names and wordings; the split is a hash of it.
    question: the user's turn.
    response: one of its correct responses.
    row: the problem in the file format of its suite.
    """

    key: str
    question: str
    response: str
    row: dict[str, Any] = field(default_factory=dict)


def gsm8k(rng: Random) -> Problem:
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
        gain_first = [_equation(rng, a, "+", b), f"{a + b} - {c} = {a + b - c}"]
        loss_first = [f"{a} - {c} = {a - c}", _equation(rng, a - c, "+", b)]
        steps = rng.choice((gain_first, loss_first)) if a > c else gain_first
        answer = a + b - c
    elif kind == "boxes":
        a, b, c = rng.randint(2, 5), rng.randint(2, 5), rng.randint(2, 9)
        question = (
            f"{name} has {a} {rng.choice(BOXES)} of {b} {items} each and {rng.choice(GAINS)} {c} more. "
            f"How many {items} does {name} have?"
        )
        steps = [_equation(rng, a, "*", b), _equation(rng, a * b, "+", c)]
        answer = a * b + c
    else:
        a, b, c = rng.randint(2, 9), rng.randint(2, 9), 0
        question = f"{name} has {a} {items}. {other} has {b} more than {name}. How many {items} do they have together?"
        steps = [_equation(rng, a, "+", b), _equation(rng, a, "+", a + b)]
        answer = a + a + b
    response = _word_solution(rng, name, items, steps, answer)
    row = {"question": question, "answer": f"{', '.join(steps)}\n#### {answer}"}
    return Problem(f"gsm8k {kind} {a} {b} {c}", question, response, row)


def _equation(rng: Random, a: int, operator: str, b: int) -> str:
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
    end = rng.choice(
        (
            f"The answer is {answer}.",
            f"So there are {answer} {items}.",
            f"Hence it is {answer}.",
            f"#### {answer}",
        )
    )
    return f"{body} {end}"


def math(rng: Random) -> Problem:
    r"""A linear equation in x with a whole solution from 1 to 9; the answer stands in \boxed{}."""
    kind = rng.choice(("plain", "bracket", "both"))
    a, b, x = rng.randint(2, 5), rng.randint(1, 12), rng.randint(1, 9)
    if kind == "plain":
        c = a * x + b
        equation = f"{a}x + {b} = {c}"
        work = rng.choice(
            (
                f"Subtract {b} to get {a}x = {a * x}. Divide by {a}:",
                f"We have {a}x = {c} - {b} = {a * x}, so",
                f"Take away {b} on both sides. Now {a}x = {a * x} and",
                f"Since {a}x = {a * x},",
            )
        )
    elif kind == "bracket":
        c = a * (x + b)
        equation = f"{a}(x + {b}) = {c}"
        work = rng.choice(
            (
                f"Divide by {a}: x + {b} = {x + b}. Subtract {b}:",
                f"We have x + {b} = {c} / {a} = {x + b}, so",
                f"Expand: {a}x + {a * b} = {c}. Thus {a}x = {a * x} and",
                f"Since x + {b} = {x + b},",
            )
        )
    else:
        d = rng.randint(1, a - 1)
        c = (a - d) * x + b
        equation = f"{a}x + {b} = {d}x + {c}"
        work = rng.choice(
            (
                f"Subtract {d}x and {b} to get {a - d}x = {(a - d) * x}. Hence",
                f"Collect x: {a - d}x + {b} = {c}. Thus {a - d}x = {(a - d) * x} and",
                f"Subtract {b}: {a}x = {d}x + {c - b}. Now {a - d}x = {(a - d) * x}, so",
            )
        )
        kind = f"both {d}"
    end = rng.choice((rf"x = \boxed{{{x}}}.", rf"the answer is \boxed{{{x}}}.", rf"we find \boxed{{{x}}}."))
    question = rng.choice((f"Solve {equation} for x.", f"Find x if {equation}."))
    response = f"{work} {end}"
    return Problem(f"math {kind} {a} {b} {x}", question, response, {"problem": question, "solution": response})


def lists(rng: Random) -> Problem:
    """An operation on a list of three to five different words; several answers may be right."""
    n = rng.choice((3, 3, 3, 4, 4, 5))
    *items, new = rng.sample(WORDS, n + 1)
    task = rng.choice(LIST_TASKS)
    shown = write_list(items)
    place = rng.randrange(n)
    question, answer = {
        "copy": (f"Copy {shown}", items),
        "reverse": (f"Reverse {shown}", items[::-1]),
        "sort": (f"Sort {shown}", sorted(items)),
        "replace": (f"Replace one word of {shown} by {new}", [*items[:place], new, *items[place + 1 :]]),
        "insert": (f"Insert {new} anywhere in {shown}", [*items[:place], new, *items[place:]]),
        "shuffle": (f"Shuffle {shown}", rng.sample(items, n)),
    }[task]
    row = {"question": question, "task": task, "items": items, "new": new, "answer": write_list(answer)}
    return Problem(question, question, write_list(answer), row)


LIST_TASKS = ("copy", "reverse", "sort", "replace", "insert", "shuffle")


def write_list(items: list[str]) -> str:
    """`[ cat, dog ]`: every word has a space before it, so it is one token wherever it stands."""
    return f"[ {', '.join(items)} ]"


def read_list(text: str) -> list[str] | None:
    """The first bracketed list of a text, or None if there is none."""
    start, end = text.find("["), text.find("]")
    if start < 0 or end < start:
        return None
    return [word.strip() for word in text[start + 1 : end].split(",")]


def list_is_right(task: str, items: list[str], new: str, answer: list[str] | None) -> bool:
    """Whether `answer` has the property that `task` asks for; a shuffle may be any order, the given one too."""
    if answer is None:
        return False
    if task == "shuffle":
        return Counter(answer) == Counter(items)
    if task == "replace":
        return any(answer == [*items[:i], new, *items[i + 1 :]] for i in range(len(items)))
    if task == "insert":
        return any(answer == [*items[:i], new, *items[i:]] for i in range(len(items) + 1))
    expected = {"copy": items, "reverse": items[::-1], "sort": sorted(items)}
    if task not in expected:
        raise ValueError(f"unknown list task {task!r}; valid: {', '.join(LIST_TASKS)}")
    return answer == expected[task]
