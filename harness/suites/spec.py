"""What a suite is, and what a generated problem is; every suite is one file beside this one.

Types of OpenCompass are import paths, so that nothing of it is imported here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

Row = dict[str, Any]
Rounds = list[dict[str, str]]


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


def json_lines(rows: list[Row]) -> str:
    """Rows as a JSON-lines file."""
    return "".join(json.dumps(row) + "\n" for row in rows)


@dataclass(frozen=True)
class Generator:
    """Generated problems of a suite, in the format of its real file.

    draw: one problem, with one correct response drawn from many: names, wordings and the order of steps vary, because
    with one wording per problem every decoder scores the same. rounds: the chat turns of its prompt. evaluation: the
    evaluator that fits its answers. length: tokens of a response. file: the rows of problems as the content of the
    suite's file. train_file: the name of a second file of the same content, where the dataset's loader wants one.
    """

    draw: Callable[[Random], Problem]
    rounds: Rounds
    evaluation: dict[str, Any]
    length: int
    file: Callable[[list[Row]], str] = json_lines
    train_file: str | None = None


@dataclass(frozen=True)
class Suite:
    """One benchmark.

    title: as tables say. dataset: its OpenCompass class, load: what that class takes besides the path, by_folder:
    whether the path is the file's folder. file: below the data folder's `data/`. columns: what the prompt reads;
    output: the column of the reference; reader: more of OpenCompass's reader_cfg. rounds: the chat turns of the prompt
    on the real file, evaluation: its eval_cfg. lengths: LLaDA's own settings for LLaDA-8B-Instruct (gen_length,
    block_length and options of its decoder). generator: of problems in the same format, if there is one. executes:
    whether scoring runs model-written code. training_columns: question and answer in its own train file, which clean
    makes a response.
    """

    name: str
    title: str
    dataset: str
    file: str
    columns: tuple[str, ...]
    output: str
    rounds: Rounds
    evaluation: dict[str, Any]
    lengths: dict[str, Any]
    generator: Generator | None = None
    executes: bool = False
    by_folder: bool = False
    load: dict[str, Any] = field(default_factory=dict)
    reader: dict[str, Any] = field(default_factory=dict)
    training_columns: tuple[str, str] | None = None
    clean: Callable[[str], str] = str


def human(prompt: str) -> Rounds:
    """A conversation of one user turn."""
    return [{"role": "HUMAN", "prompt": prompt}]
