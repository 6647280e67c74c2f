"""Lists: operations on lists with several right answers, after ParallelBench (arXiv 2510.04767).

Copy, reverse, sort, replace, insert and shuffle, judged by the wanted property. There is no real file.
"""

from collections import Counter
from random import Random

from harness.suites.spec import Generator, Problem, Suite, human

WORDS = (
    *("ant", "bee", "cat", "cow", "dog", "elk", "fox", "hen"),
    *("jay", "owl", "pig", "ram", "rat", "seal", "wolf", "yak"),
)
LIST_TASKS = ("copy", "reverse", "sort", "replace", "insert", "shuffle")


def draw(rng: Random) -> Problem:
    """An operation on a list of three to five different words; several answers may be right."""
    n = rng.choice((3, 3, 3, 4, 4, 5))
    *items, new = rng.sample(WORDS, n + 1)
    task = rng.choice(LIST_TASKS)
    index = rng.randrange(n)
    question = question_of(task, items, new)
    answer = {
        "copy": items,
        "reverse": items[::-1],
        "sort": sorted(items),
        "replace": [*items[:index], new, *items[index + 1 :]],
        "insert": [*items[:index], new, *items[index:]],
        "shuffle": rng.sample(items, n),
    }[task]
    row = {"question": question, "task": task, "items": items, "new": new, "answer": write_list(answer)}
    return Problem(question, question, write_list(answer), row)


def question_of(task: str, items: list[str], new: str, at: str = "") -> str:
    """The question about a list. at: which position, in words, of the tasks that name one ("insert at")."""
    shown = write_list(items)
    return {
        "copy": f"Copy {shown}",
        "reverse": f"Reverse {shown}",
        "sort": f"Sort {shown}",
        "shuffle": f"Shuffle {shown}",
        "insert": f"Insert {new} anywhere in {shown}",
        "remove": f"Remove one word of {shown}",
        "replace": f"Replace one word of {shown} by {new}",
        "insert at": f"Insert {new} as the {at} word of {shown}",
        "remove at": f"Remove the {at} word of {shown}",
        "replace at": f"Replace the {at} word of {shown} by {new}",
    }[task]


def write_list(items: list[str]) -> str:
    """`[ cat, dog ]`: every word has a space before it, so it is one token wherever it stands."""
    return f"[ {', '.join(items)} ]"


def read_list(text: str) -> list[str] | None:
    """The first bracketed list of a text, or None if there is none."""
    start, end = text.find("["), text.find("]")
    if start < 0 or end < start:
        return None
    return [word.strip() for word in text[start + 1 : end].split(",")]


def right_lists(task: str, items: list[str], new: str, place: int = 0) -> list[list[str]]:
    """All right answers, but to `shuffle`, where every order is one. place: of the tasks that say one."""
    whole = {"copy": items, "reverse": items[::-1], "sort": sorted(items)}
    if task in whole:
        return [whole[task]]
    kind = task.removesuffix(" at")
    places = (place,) if task != kind else range(len(items) + (kind == "insert"))
    put, gone = [] if kind == "remove" else [new], int(kind != "insert")
    return [[*items[:at], *put, *items[at + gone :]] for at in places]


def list_is_right(task: str, items: list[str], new: str, answer: list[str] | None, place: int = 0) -> bool:
    """Whether `answer` has the property that `task` asks for; a shuffle may be any order, the given one too."""
    if answer is None:
        return False
    if task == "shuffle":
        return Counter(answer) == Counter(items)
    return answer in right_lists(task, items, new, place)


SUITE = Suite(
    name="lists",
    title="Lists",
    lengths={"gen_length": 32, "block_length": 32},
    generator=Generator(
        draw=draw,
        file="lists/test.jsonl",
        dataset="harness.suites.datasets.ListsDataset",
        columns=("question",),
        output="answer",
        rounds=human("{question}"),
        evaluation={"evaluator": {"type": "harness.suites.datasets.ListsEvaluator"}},
        length=32,
    ),
)
