"""What a suite is, and what a generated problem is; every suite is one file beside this one.

Types of OpenCompass are import paths, so that nothing of it is imported here.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from harness.suites.published import settings_of_model
from harness.suites.questions import Questions

SMALL_LENGTH = 64  # tokens of a response of a small model, on suites without generated problems
Row = dict[str, Any]
Rounds = list[dict[str, str]]
BOXED = "\nPlease reason step by step, and put your final answer within \\boxed{}."


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


def split_of(problem: Problem) -> str:
    """`test`, `dev` (one in sixteen each) or `train`, by a hash of the problem's key."""
    bucket = hashlib.sha256(problem.key.encode()).digest()[0] % 16
    return {0: "test", 1: "dev"}.get(bucket, "train")


def json_lines(rows: list[Row]) -> str:
    """Rows as a JSON-lines file."""
    return "".join(json.dumps(row) + "\n" for row in rows)


@dataclass(frozen=True)
class Generator:
    """Generated problems of a suite, as a dataset of their own in the format of a real file.

    draw: one problem, with one correct response drawn from many: names, wordings and the order of steps vary, because
    with one wording per problem every decoder scores the same. file: below the data folder's `data/`; content: the rows
    of problems as what is in it; train_file: the name of a second file of the same content, where the dataset's loader
    wants one. dataset: its OpenCompass class, by_folder: whether that takes the file's folder, load: what it takes
    besides. columns: what the prompt reads; output: the column of the reference; reader: more of OpenCompass's
    reader_cfg. rounds: the chat turns of the prompt; evaluation: its eval_cfg. length: tokens of a response.
    block_length: LLaDA's for them (None: one block). problems_of: the suite whose problems these are, if another.
    """

    draw: Callable[[Random], Problem]
    file: str
    dataset: str
    columns: tuple[str, ...]
    output: str
    rounds: Rounds
    evaluation: dict[str, Any]
    length: int
    content: Callable[[list[Row]], str] = json_lines
    train_file: str | None = None
    by_folder: bool = False
    block_length: int | None = None
    problems_of: str | None = None
    load: dict[str, Any] = field(default_factory=dict)
    reader: dict[str, Any] = field(default_factory=dict)

    @property
    def shots(self) -> Rounds:
        """The turns before the problem's: solved problems."""
        return self.rounds[:-1]


@dataclass(frozen=True)
class Training:
    """The format of a suite's own train file: its columns, the prompt of a question, and what an answer becomes."""

    question: str
    answer: str
    prompt: str
    clean: Callable[[str], str] = str


@dataclass(frozen=True)
class Suite:
    """One benchmark.

    title: as tables say. configuration: the name of OpenCompass's configuration for the real problems, None if there
    are generated ones alone; changes: what of its dataset is otherwise here. file: the real problems, below the data
    folder's `data/`. lengths: LLaDA's own settings for LLaDA-8B-Instruct with this configuration (gen_length,
    block_length and options of its decoder). executes: whether scoring runs model-written code. foreign: it was asked
    for by the name of its configuration alone. questions: its problems, where they are a file of the user's.
    """

    name: str
    title: str
    lengths: dict[str, Any]
    configuration: str | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    file: str | None = None
    generator: Generator | None = None
    executes: bool = False
    training: Training | None = None
    foreign: bool = False
    questions: Questions | None = None

    def settings_for(self, model: str, small: bool) -> dict[str, Any]:
        """Default lengths and decoder options for a model: gen_length, block_length and options.

        model: nano, a folder or a hub id. small: for a small model or generated problems, whatever the model.
        """
        if not small:
            return settings_of_model(model, self.name) or self.lengths
        if self.generator is None:
            return {"gen_length": SMALL_LENGTH}
        length, block = self.generator.length, self.generator.block_length
        return {"gen_length": length} if block is None else {"gen_length": length, "block_length": block}


def human(prompt: str) -> Rounds:
    """A conversation of one user turn."""
    return [{"role": "HUMAN", "prompt": prompt}]
