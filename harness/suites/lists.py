"""Operations on lists, and waiting lines and sentences, after ParallelBench (arXiv 2510.04767);
generated alone.

`lists` is judged by the wanted property. `line-fixed` has one right answer to each question,
`line-free` and `words` (number, article and verb agree) many that differ in several tokens at once:
only of the first independent predictions can be right.
"""

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import product
from random import Random
from typing import Any

from harness.suites.spec import Generator, Problem, Suite, human, judged_by

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
    row = {
        "question": question,
        "task": task,
        "items": items,
        "new": new,
        "answer": write_list(answer),
    }
    return Problem(question, question, write_list(answer), row)


def question_of(task: str, items: list[str], new: str, at: str = "") -> str:
    """The question about a list. at: which position, in words, of the tasks that name one ("insert
    at")."""
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
    start = text.find("[")
    end = text.find("]")
    if start < 0 or end < start:
        return None
    return [word.strip() for word in text[start + 1 : end].split(",")]


def right_lists(task: str, items: list[str], new: str, place: int = 0) -> list[list[str]]:
    """All right answers, but to `shuffle`, where every order is one. place: of the tasks that say
    one."""
    whole = {"copy": items, "reverse": items[::-1], "sort": sorted(items)}
    if task in whole:
        return [whole[task]]
    kind = task.removesuffix(" at")
    places = (place,) if task != kind else range(len(items) + (kind == "insert"))
    put = [] if kind == "remove" else [new]
    gone = int(kind != "insert")
    return [[*items[:at], *put, *items[at + gone :]] for at in places]


def list_is_right(
    task: str, items: list[str], new: str, answer: list[str] | None, place: int = 0
) -> bool:
    """Whether `answer` has the property that `task` asks for; a shuffle may be any order, the given
    one too."""
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
        dataset="opencompass.datasets.JsonlDataset",
        columns=("question",),
        output="answer",
        rounds=human("{question}"),
        evaluation={"evaluator": {"type": "harness.sandbox.evaluators.ListsEvaluator"}},
        length=32,
    ),
)


ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
FIXED = ("copy", "reverse", "sort", "insert at", "remove at", "replace at")
FREE = ("shuffle", "insert", "remove", "replace")
LOOKS = ("big", "new", "old", "red")
VERBS = ("eat", "play", "run", "sing")
PLACES = ("barn", "box", "lake", "park", "yard")
PLURALS = {"fox": "foxes", "wolf": "wolves"}


def draw_line(rng: Random, tasks: tuple[str, ...]) -> Problem:
    """A task on a line of three to five animals; what `lists` asks too is in the same split
    there."""
    *items, new = rng.sample(WORDS, rng.randint(3, 5) + 1)
    task = rng.choice(tasks)
    place = rng.randrange(len(items) + (task == "insert at"))
    question = question_of(task, items, new, ORDINALS[place])
    wanted = {"task": task, "line": items, "new": new, "place": place}
    answer = (
        rng.sample(items, len(items))
        if task == "shuffle"
        else rng.choice(right_lists(task, items, new, place))
    )
    return Problem(
        question, question, write_list(answer), {"prompt": question, "answer": json.dumps(wanted)}
    )


def line_is_right(response: str, answer: str) -> bool:
    """Whether a response has a line that the question wants. answer: JSON, the question's parts."""
    wanted = json.loads(answer)
    return list_is_right(
        wanted["task"], wanted["line"], wanted["new"], read_list(response), wanted["place"]
    )


def draw_sentence(rng: Random) -> Problem:
    """Four words in any order, and a sentence that has them."""
    words = [rng.choice(kind) for kind in (LOOKS, WORDS, VERBS, PLACES)]
    sentence = rng.choice(right_sentences(*words))
    question = f"Write a sentence with the words {write_list(rng.sample(words, 4))}"
    return Problem(
        f"words {words}", question, sentence, {"prompt": question, "answer": json.dumps(words)}
    )


def right_sentences(look: str, animal: str, verb: str, place: str) -> list[str]:
    """All right answers: number, article and verb agree."""
    an = "an" if look[0] in "aeiou" else "a"
    one = [(f"{article} {look} {animal}", f"{verb}s") for article in ("the", an, "one")]
    many = [
        (f"{count} {look} {PLURALS.get(animal, f'{animal}s')}", verb)
        for count in ("the", "two", "all")
    ]
    found = []
    for (subject, does), where, article in product(one + many, ("in", "by"), ("the", "a")):
        at = f"{where} {article} {place}"
        found += [f"{subject} {does} {at}.", f"{at} {subject} {does}."]
    return [f"{each[0].upper()}{each[1:]}" for each in found]


def sentence_is_right(response: str, answer: str) -> bool:
    """Whether a response is a sentence with the words. answer: JSON, the words by kind."""
    return " ".join(response.split()) in right_sentences(*json.loads(answer))


def judged_suite(
    name: str,
    title: str,
    draw: Callable[..., Problem],
    judge: Callable[[str, str], bool],
    **arguments: Any,
) -> Suite:
    """A suite of generated problems.

    Args:
        name: of the suite, and of its folder.
        title: in tables.
        draw: one problem, from a random generator and the arguments.
        judge: whether a response is right, given the answer of a problem's row.
        arguments: of draw.
    """
    generator = judged_by(
        f"{judge.__module__}:{judge.__name__}",
        {"prompt": "prompt", "answer": "answer"},
        draw=partial(draw, **arguments),
        file=f"{name}/test.jsonl",
        columns=("prompt",),
        rounds=human("{prompt}"),
    )
    return Suite(name, title, {"gen_length": 32, "block_length": 32}, generator=generator)


PARALLEL = (
    judged_suite("line-fixed", "Line, one answer", draw_line, line_is_right, tasks=FIXED),
    judged_suite("line-free", "Line, many answers", draw_line, line_is_right, tasks=FREE),
    judged_suite("words", "Words", draw_sentence, sentence_is_right),
)
