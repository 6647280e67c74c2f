"""Operations on lists, and waiting lines and sentences, after ParallelBench (arXiv 2510.04767). All
are only generated.

A response to `lists` is right if it has the property that the question asks for. A question of
`line-fixed` has one right answer. Questions of `line-free` and `words` (number, article and verb
must agree) have many that differ in several tokens at once, so that tokens predicted independently
of each other are right for `line-fixed` alone.
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
    """Draw an operation on a list of three to five different words. Several answers may be
    right."""
    n = rng.choice((3, 3, 3, 4, 4, 5))
    *items, new = rng.sample(WORDS, n + 1)
    task = rng.choice(LIST_TASKS)
    index = rng.randrange(n)
    question = question_of(task, items, new)
    # Drawn for every task, so that the problems do not depend on which tasks there are.
    shuffled = rng.sample(items, n)
    right = [shuffled] if task == "shuffle" else right_lists(task, items, new)
    answer = right[min(index, len(right) - 1)]
    row = {
        "question": question,
        "task": task,
        "items": items,
        "new": new,
        "answer": write_list(answer),
    }
    return Problem(question, question, write_list(answer), row)


def question_of(task: str, items: list[str], new: str, at: str = "") -> str:
    """The question about a list.

    Args:
        task: one of the keys below.
        items: the words of the list.
        new: the word to insert, or to put in the place of another.
        at: the ordinal of the position, for tasks that name one ("insert at").
    """
    text = write_list(items)
    return {
        "copy": f"Copy {text}",
        "reverse": f"Reverse {text}",
        "sort": f"Sort {text}",
        "shuffle": f"Shuffle {text}",
        "insert": f"Insert {new} anywhere in {text}",
        "remove": f"Remove one word of {text}",
        "replace": f"Replace one word of {text} by {new}",
        "insert at": f"Insert {new} as the {at} word of {text}",
        "remove at": f"Remove the {at} word of {text}",
        "replace at": f"Replace the {at} word of {text} by {new}",
    }[task]


def write_list(items: list[str]) -> str:
    """A list as text, `[ cat, dog ]`. Every word has a space before it, so that it is the same
    token at every position."""
    return f"[ {', '.join(items)} ]"


def read_list(text: str) -> list[str] | None:
    """The words of the first bracketed list in a text; None if there is none."""
    start = text.find("[")
    end = text.find("]")
    if start < 0 or end < start:
        return None
    return [word.strip() for word in text[start + 1 : end].split(",")]


def right_lists(task: str, items: list[str], new: str, place: int = 0) -> list[list[str]]:
    """All right answers to a task other than `shuffle`, to which every order is right.

    Args:
        task: see `question_of`.
        items: the words of the list.
        new: the word to insert, or to put in the place of another.
        place: the index of the position, for tasks that name one.
    """
    whole = {"copy": items, "reverse": items[::-1], "sort": sorted(items)}
    if task in whole:
        return [whole[task]]
    kind = task.removesuffix(" at")
    # A word can also be inserted after the last one.
    places = (place,) if task != kind else range(len(items) + (kind == "insert"))
    added = [] if kind == "remove" else [new]
    removed = int(kind != "insert")
    return [[*items[:index], *added, *items[index + removed :]] for index in places]


def list_is_right(
    task: str, items: list[str], new: str, answer: list[str] | None, place: int = 0
) -> bool:
    """Whether an answer has the property that the task asks for.

    Args:
        task, items, new, place: see `right_lists`.
        answer: the words of the response's list; None if it has none.
    """
    if answer is None:
        return False
    # Any order is right, also that of the question.
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
    """Draw a task on a line of three to five animals.

    Args:
        rng: the source of all draws.
        tasks: of which one is drawn.
    """
    *items, new = rng.sample(WORDS, rng.randint(3, 5) + 1)
    task = rng.choice(tasks)
    place = rng.randrange(len(items) + (task == "insert at"))
    question = question_of(task, items, new, ORDINALS[place])
    parts = {"task": task, "line": items, "new": new, "place": place}
    answer = (
        rng.sample(items, len(items))
        if task == "shuffle"
        else rng.choice(right_lists(task, items, new, place))
    )
    # The question is the key: where `lists` asks the same, both problems are in the same split.
    return Problem(
        question, question, write_list(answer), {"prompt": question, "answer": json.dumps(parts)}
    )


def line_is_right(response: str, answer: str) -> bool:
    """Whether a response has a right line. answer: JSON with the parts of the question."""
    parts = json.loads(answer)
    return list_is_right(
        parts["task"], parts["line"], parts["new"], read_list(response), parts["place"]
    )


def draw_sentence(rng: Random) -> Problem:
    """Draw four words in random order, and a sentence with them."""
    words = [rng.choice(kind) for kind in (LOOKS, WORDS, VERBS, PLACES)]
    sentence = rng.choice(right_sentences(*words))
    question = f"Write a sentence with the words {write_list(rng.sample(words, 4))}"
    return Problem(
        f"words {words}", question, sentence, {"prompt": question, "answer": json.dumps(words)}
    )


def right_sentences(look: str, animal: str, verb: str, place: str) -> list[str]:
    """All right sentences with these words: number, article and verb agree."""
    an = "an" if look[0] in "aeiou" else "a"
    one = [(f"{article} {look} {animal}", f"{verb}s") for article in ("the", an, "one")]
    many = [
        (f"{count} {look} {PLURALS.get(animal, f'{animal}s')}", verb)
        for count in ("the", "two", "all")
    ]
    sentences = []
    for (subject, does), preposition, article in product(one + many, ("in", "by"), ("the", "a")):
        at = f"{preposition} {article} {place}"
        sentences += [f"{subject} {does} {at}.", f"{at} {subject} {does}."]
    return [f"{sentence[0].upper()}{sentence[1:]}" for sentence in sentences]


def sentence_is_right(response: str, answer: str) -> bool:
    """Whether a response is a right sentence. answer: JSON with the four words in the order of
    `right_sentences`."""
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
        draw: draws a problem from a random generator and the arguments.
        judge: whether a response is right, from the response and the answer of the problem's row.
        arguments: further arguments of `draw`.
    """
    # By its name: OpenCompass imports the judge where it scores.
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
