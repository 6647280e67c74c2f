"""Waiting lines and sentences: what to do with a line of animals or with four words, after ParallelBench
(arXiv 2510.04767), in this project's words. Generated alone.

`line-fixed` has one right answer to each question, `line-free` many, which differ in several tokens at once, and so has
`words`: a sentence's number, article and verb agree. Independent predictions can be right of the first alone.
"""

import json
from collections.abc import Callable
from functools import partial
from itertools import product
from random import Random
from typing import Any

from harness.suites.lists import WORDS, list_is_right, question_of, read_list, right_lists, write_list
from harness.suites.spec import Problem, Suite, human, judged_by

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
FIXED = ("copy", "reverse", "sort", "insert at", "remove at", "replace at")
FREE = ("shuffle", "insert", "remove", "replace")
LOOKS = ("big", "new", "old", "red")
VERBS = ("eat", "play", "run", "sing")
PLACES = ("barn", "box", "lake", "park", "yard")
PLURALS = {"fox": "foxes", "wolf": "wolves"}


def draw_line(rng: Random, tasks: tuple[str, ...]) -> Problem:
    """A task on a line of three to five animals; what `lists` asks too is in the same split there."""
    *items, new = rng.sample(WORDS, rng.randint(3, 5) + 1)
    task = rng.choice(tasks)
    place = rng.randrange(len(items) + (task == "insert at"))
    question = question_of(task, items, new, ORDINALS[place])
    wanted = {"task": task, "line": items, "new": new, "place": place}
    answer = rng.sample(items, len(items)) if task == "shuffle" else rng.choice(right_lists(task, items, new, place))
    return Problem(question, question, write_list(answer), {"prompt": question, "answer": json.dumps(wanted)})


def line_is_right(response: str, answer: str) -> bool:
    """Whether a response has a line that the question wants. answer: JSON, the question's parts."""
    wanted = json.loads(answer)
    return list_is_right(wanted["task"], wanted["line"], wanted["new"], read_list(response), wanted["place"])


def draw_sentence(rng: Random) -> Problem:
    """Four words in any order, and a sentence that has them."""
    words = [rng.choice(kind) for kind in (LOOKS, WORDS, VERBS, PLACES)]
    sentence = rng.choice(right_sentences(*words))
    question = f"Write a sentence with the words {write_list(rng.sample(words, 4))}"
    return Problem(f"words {words}", question, sentence, {"prompt": question, "answer": json.dumps(words)})


def right_sentences(look: str, animal: str, verb: str, place: str) -> list[str]:
    """All right answers: number, article and verb agree."""
    an = "an" if look[0] in "aeiou" else "a"
    one = [(f"{article} {look} {animal}", f"{verb}s") for article in ("the", an, "one")]
    many = [(f"{count} {look} {PLURALS.get(animal, f'{animal}s')}", verb) for count in ("the", "two", "all")]
    found = []
    for (subject, does), where, article in product(one + many, ("in", "by"), ("the", "a")):
        at = f"{where} {article} {place}"
        found += [f"{subject} {does} {at}.", f"{at} {subject} {does}."]
    return [f"{each[0].upper()}{each[1:]}" for each in found]


def sentence_is_right(response: str, answer: str) -> bool:
    """Whether a response is a sentence with the words. answer: JSON, the words by kind."""
    return " ".join(response.split()) in right_sentences(*json.loads(answer))


def _suite(
    name: str, title: str, draw: Callable[..., Problem], judge: Callable[[str, str], bool], **arguments: Any
) -> Suite:
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
    _suite("line-fixed", "Line, one answer", draw_line, line_is_right, tasks=FIXED),
    _suite("line-free", "Line, many answers", draw_line, line_is_right, tasks=FREE),
    _suite("words", "Words", draw_sentence, sentence_is_right),
)
