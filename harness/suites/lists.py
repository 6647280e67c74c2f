"""Lists: operations on lists with several right answers, after ParallelBench (arXiv 2510.04767).

Copy, reverse, sort, replace, insert and shuffle, judged by the property asked for. There is no real file.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from harness.suites.spec import Generator, Problem, Suite, human

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


def draw(rng: Random) -> Problem:
    """An operation on a list of three to five different words; several answers may be right."""
    n = rng.choice((3, 3, 3, 4, 4, 5))
    *items, new = rng.sample(WORDS, n + 1)
    task = rng.choice(LIST_TASKS)
    shown = write_list(items)
    index = rng.randrange(n)
    question, answer = {
        "copy": (f"Copy {shown}", items),
        "reverse": (f"Reverse {shown}", items[::-1]),
        "sort": (f"Sort {shown}", sorted(items)),
        "replace": (f"Replace one word of {shown} by {new}", [*items[:index], new, *items[index + 1 :]]),
        "insert": (f"Insert {new} anywhere in {shown}", [*items[:index], new, *items[index:]]),
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


EVALUATION: dict[str, Any] = {"evaluator": {"type": "harness.sandbox.evaluators.ListsEvaluator"}}
SUITE = Suite(
    name="lists",
    title="Lists",
    lengths={"gen_length": 32, "block_length": 32},
    generator=Generator(
        draw=draw,
        file="lists/test.jsonl",
        dataset="harness.sandbox.evaluators.ListsDataset",
        columns=("question",),
        output="answer",
        rounds=human("{question}"),
        evaluation=EVALUATION,
        length=32,
    ),
)
