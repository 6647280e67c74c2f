"""Prompts and responses of a file, for training, and as ids for DDOSP's profile. Limit: one user turn.

A JSON object a line: {"prompt", "response"}, the prompt being the user's turn as the model will see it, or the lines of
the train files of GSM8K (without its calculator annotations) and MATH, which are put into the suite's prompt.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from harness.errors import UserError, explained
from harness.suites.registry import SUITES
from harness.suites.spec import Training
from harness.suites.splits import problems
from model_wrappers import Backbone
from model_wrappers.chat import encode_question

PLAIN = Training("prompt", "response", "{prompt}")


class Exchange(NamedTuple):
    """A user's turn and the response to it, as text."""

    prompt: str
    response: str


def read_exchanges(path: Path, option: str, suite: str | None = None, count: int | None = None) -> list[Exchange]:
    """The lines of a file, or the first `count`; with a suite its train file's format is the only other one.

    Raises UserError, with the command line's `option`, for a file that is too short, and for a bad line, naming it.
    """
    with explained(f"{option} {path}: cannot be read", OSError, ValueError):
        lines = path.read_text(encoding="utf-8").splitlines()
    if len(lines) < (count or 1):
        raise UserError(f"{option} {path} has {len(lines)} lines; at least {count or 1} are needed")
    formats = [PLAIN, *(each.training for name, each in SUITES.items() if each.training and suite in (None, name))]
    exchanges = []
    for number, line in enumerate(lines[:count], 1):
        try:
            row: Any = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        form = next((form for form in formats if _is_text(row, form.question) and _is_text(row, form.answer)), None)
        if form is None:
            wanted = " or ".join(f'"{each.question}" and "{each.answer}"' for each in formats)
            raise UserError(
                f"{option} {path}, line {number}: an object with {wanted} is needed, both text that is not empty"
            )
        prompt = form.prompt.replace(f"{{{form.question}}}", row[form.question])
        exchanges.append(Exchange(prompt, form.clean(row[form.answer])))
    return exchanges


def _is_text(row: Any, name: str) -> bool:
    return isinstance(row, dict) and isinstance(row.get(name), str) and bool(row[name].strip())


class Example(NamedTuple):
    """A prompt and its response, as ids; all responses of one estimate have the same length."""

    prompt: list[int]
    response: list[int]


def generated_exchanges(suite: str, count: int) -> list[Exchange]:
    """`count` of nano's generated training problems. Raises ValueError if there are fewer."""
    return [Exchange(problem.question, problem.response) for problem in problems(suite, "train", count)]


def encode(backbone: Backbone, exchanges: list[Exchange], length: int) -> list[Example]:
    """The exchanges as ids, every response cut or padded with EOS to `length`. Raises UserError for one too long."""
    tokenizer = backbone.text_tokenizer()
    end = [] if backbone.eot_id is None else [backbone.eot_id]
    examples = []
    for number, exchange in enumerate(exchanges, 1):
        prompt = encode_question(tokenizer, exchange.prompt)
        text = list(tokenizer(exchange.response, add_special_tokens=False).input_ids)
        if len(prompt) + length > backbone.max_length:
            raise UserError(
                f"training response {number}: prompt of {len(prompt)} tokens and response of {length} exceed the limit "
                f"of {backbone.name}, {backbone.max_length} tokens"
            )
        examples.append(Example(prompt, (text + end + [backbone.eos_id] * length)[:length]))
    return examples
