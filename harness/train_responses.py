"""Training prompts and responses that DDOSP's profile is estimated on: nano's generated ones, or those of a file.

A file holds a JSON object a line: {"prompt", "response"}, the prompt being the user's turn as the model will see it, or
the lines of GSM8K's own train file ({"question", "answer"}; its calculator annotations, <<48/2=24>>, are taken out) or
of MATH's ({"problem", "solution"}), which are put into the suite's prompt. Limit: one user turn, so the three solved
tasks before MBPP's prompt must stand in the prompt's text.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from harness.errors import UserError
from harness.nano_suites import problems
from harness.suites import SUITES
from model_wrappers import Backbone
from model_wrappers.chat import encode_question

PLAIN = ("prompt", "response")
OWN_FORMAT = {"gsm8k": ("question", "answer"), "math": ("problem", "solution")}


class Exchange(NamedTuple):
    """A user's turn and the response to it, as text."""

    prompt: str
    response: str


class Example(NamedTuple):
    """A prompt and its response, as ids; all responses of one estimate are as long as each other."""

    prompt: list[int]
    response: list[int]


def generated_exchanges(suite: str, count: int) -> list[Exchange]:
    """`count` of nano's generated training problems. Raises ValueError if there are fewer."""
    return [Exchange(problem.question, problem.response) for problem in problems(suite, "train", count)]


def read_exchanges(path: Path, suite: str, count: int) -> list[Exchange]:
    """The first `count` lines of a file. Raises UserError for a bad line, naming it, and for a file with fewer."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UserError(f"--responses {path}: cannot be read: {error}") from error
    if len(lines) < count:
        raise UserError(f"--responses {path} has {len(lines)} lines, fewer than --examples {count}")
    where = f"--responses {path}, line"
    return [_exchange(line, suite, f"{where} {number}") for number, line in enumerate(lines[:count], 1)]


def _exchange(line: str, suite: str, where: str) -> Exchange:
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise UserError(f"{where}: not JSON: {error}") from error
    formats = [PLAIN, *([OWN_FORMAT[suite]] if suite in OWN_FORMAT else [])]
    for names in formats:
        texts = [str(row[name]) for name in names if _is_text(row, name)]
        if len(texts) < len(names):
            continue
        if names == PLAIN:
            return Exchange(*texts)
        (turn,) = SUITES[suite].rounds
        prompt = turn["prompt"].replace(f"{{{names[0]}}}", texts[0])
        return Exchange(prompt, re.sub(r"<<[^>]*>>", "", texts[1]) if suite == "gsm8k" else texts[1])
    wanted = " or ".join(" and ".join(f'"{name}"' for name in names) for names in formats)
    raise UserError(f"{where}: an object with {wanted} is needed, both text that is not empty")


def _is_text(row: Any, name: str) -> bool:
    return isinstance(row, dict) and isinstance(row.get(name), str) and bool(row[name].strip())


def encode(backbone: Backbone, exchanges: list[Exchange], length: int) -> list[Example]:
    """The exchanges as ids, every response cut or padded with EOS to `length`, as in training.

    Raises UserError where one does not fit the model.
    """
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
