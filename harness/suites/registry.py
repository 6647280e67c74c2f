"""The suites by name, their generated problems by split, and exchanges to train on.

A new suite is one file here and one entry in ALL. `opencompass:NAME`, any generation configuration
of OpenCompass, and `NAME=FILE`, a file of questions, are suites too. Train, dev and test never
overlap: a problem's split is decided by a hash of what it asks, without names and wordings.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.elements import elements_of
from harness.errors import UserError, explained
from harness.suites import gsm8k, humaneval, lists, math, mbpp, planning
from harness.suites.questions import TESTS, Questions, questions_of, rows_of
from harness.suites.spec import FOREIGN, Problem, Rounds, Suite, Training, human, split_of
from harness.suites.texts import is_text
from model_wrappers.decoders import METHODS
from model_wrappers.options import meant

if TYPE_CHECKING:
    from model_wrappers import Backbone

SHOTS = 4
# Draws of problems of any split until one of the wanted split must have come.
MOST_DRAWS = 10_000


def draw(suite: Suite, split: str, rng: Random) -> Problem:
    """Draw a problem of a suite's split by rejection.

    Args:
        suite: with a generator.
        split: train, dev or test.
        rng: the source of all draws.

    Raises:
        ValueError: no problem of the split is drawn in MOST_DRAWS draws.
    """
    generator = suite.generated
    for _ in range(MOST_DRAWS):
        problem = generator.draw(rng)
        if split_of(problem) == split:
            return problem
    raise ValueError(
        f"{suite.name} draws no {split} problem in {MOST_DRAWS}: it needs more different questions"
    )


def with_shots(suite: Suite) -> Suite:
    """The suite NAME-4shot: the same generated problems, each after the same SHOTS solved training
    problems."""
    generator = suite.generated
    rng = Random(f"{suite.name} shots")
    solved: Rounds = []
    for problem in (draw(suite, "train", rng) for _ in range(SHOTS)):
        solved += [*human(problem.question), {"role": "BOT", "prompt": problem.response}]
    return Suite(
        name=f"{suite.name}-{SHOTS}shot",
        title=f"{suite.title}, {SHOTS}-shot",
        lengths=suite.lengths,
        generator=replace(generator, rounds=[*solved, *generator.rounds], problems_of=suite.name),
        executes=suite.executes,
    )


LONG = (gsm8k.LONG, mbpp.LONG)
TABLE = Path(__file__).with_name("configurations.toml").read_text("utf-8")
CONFIGURATIONS = [Suite(**fields) for fields in tomllib.loads(TABLE)["suites"]]
ALL = (
    gsm8k.SUITE,
    math.SUITE,
    math.MATH_500,
    humaneval.SUITE,
    mbpp.SUITE,
    lists.SUITE,
    *LONG,
    *map(with_shots, (gsm8k.SUITE, math.SUITE, humaneval.SUITE, mbpp.SUITE, *LONG)),
    gsm8k.HARD,
    mbpp.HARD,
    *lists.PARALLEL,
    *planning.PLANNING,
    *CONFIGURATIONS,
)
# Grows by the suites of plugins and files when they are named.
SUITES: dict[str, Suite] = {suite.name: suite for suite in ALL}
GENERATED = tuple(name for name, suite in SUITES.items() if suite.generator is not None)
PAPER_SUITES = ("gsm8k", "math", "humaneval", "mbpp")
# Headings of table columns other than the suites'; no suite may have one of them as its title.
COLUMNS = ("mean", "all", "checkpoint", "acc.", "speed", "fwd.", "acceptance", "points")
FOREIGN_LENGTHS = {"gen_length": 256, "block_length": 32}


def suite_named(name: str) -> Suite:
    """A suite by its name, or a configuration of OpenCompass as a suite.

    Args:
        name: a key of SUITES, or `opencompass:NAME`.

    Raises:
        UserError: the name is unknown.
    """
    if name.startswith(FOREIGN) and name != FOREIGN:
        configuration = name.removeprefix(FOREIGN)
        # A configuration of a suite of ours has the same evaluator, and so its known faults.
        base_fault = next(
            (suite.base_fault for suite in ALL if configuration.startswith(f"{suite.name}_gen")),
            "",
        )
        return Suite(
            name,
            configuration,
            FOREIGN_LENGTHS,
            configuration,
            foreign=True,
            base_fault=base_fault,
        )
    if name not in SUITES:
        fault = f"unknown suite {name}" if name else "--suite names no suite"
        forms = [f"{FOREIGN}NAME", "NAME=FILE.jsonl"]
        raise UserError(
            fault + meant(name, [*forms, *SUITES], {"a method, for --methods": METHODS})
        )
    return SUITES[name]


def suites_named(names: str | Iterable[str]) -> dict[str, Suite]:
    """The suites of --suite, by name.

    Args:
        names: comma-separated elements, or several such texts.

    Raises:
        UserError: a name is unknown, repeated, or the heading of another column.
    """
    chosen: dict[str, Suite] = {}
    for element in elements_of(names if isinstance(names, str) else ";".join(names)):
        name = element
        if "=" in element:
            name, questions = questions_of(element)
            add_questions(name, questions)
        if name in chosen:
            raise UserError(f"--suite names a suite twice: {name}")
        suite = suite_named(name)
        columns = {*COLUMNS, *(other.title.casefold() for other in chosen.values())}
        if taken := columns & {name.casefold(), suite.title.casefold()}:
            raise UserError(
                f"--suite {element}: tables have a column {taken.pop()} already; choose another"
                " name"
            )
        chosen[name] = suite
    # Without any name, suite_named raises its error.
    return chosen or {"": suite_named("")}


def add_questions(name: str, questions: Questions) -> None:
    """Register a file of questions as a suite.

    Args:
        name: of the suite; an earlier file of this name is replaced.
        questions: the file, its columns and its judge.

    Raises:
        UserError: another kind of suite has this name.
    """
    if name in SUITES and SUITES[name].questions is None:
        raise UserError(f"--suite {name}=...: a suite {name} is there already; choose another name")
    executes = questions.judge == TESTS
    SUITES[name] = Suite(name, name, FOREIGN_LENGTHS, questions=questions, executes=executes)


# Generated problems of a run without a larger limit.
TEST_PROBLEMS = 200
# The value of --data for generated problems: split and seed.
GENERATED_DATA = re.compile(r"generated(-dev)?(?::([0-9]{1,9}))?")


def split_named(data: object) -> tuple[str, int] | None:
    """The split and the seed of `--data generated[-dev][:SEED]`; None for other data."""
    match = GENERATED_DATA.fullmatch(data) if isinstance(data, str) else None
    return match and ("dev" if match[1] else "test", int(match[2] or 0))


def problems(
    name: str, split: str, count: int, seed: int = 0, allow_fewer: bool = False
) -> Iterator[Problem]:
    """Draw problems with different questions; the same arguments give the same problems.

    Args:
        name: of a suite with a generator.
        split: train, dev or test.
        count: how many to draw.
        seed: of the draws.
        allow_fewer: whether to stop, without an error, if the split seems to have fewer.

    Yields:
        The problems. A larger count continues those of a smaller one.

    Raises:
        UserError: while iterating: the suite is unknown.
        ValueError: while iterating: the split seems to have fewer problems, without allow_fewer;
            or, as `draw`, none at all.
    """
    suite = suite_named(name)
    # Seeded without the count: a larger count continues the same problems.
    rng = Random(f"{suite.generated.problems_of or suite.name} {split} {seed}")
    seen: set[str] = set()
    draws = 0
    while len(seen) < count:
        draws += 1
        # Repeated questions use up draws: with this many it is hopeless.
        if draws > 20 * count + 1000:
            if allow_fewer:
                return
            raise ValueError(
                f"{suite.name} has fewer than {count} different {split} problems; ask for fewer"
            )
        problem = draw(suite, split, rng)
        if problem.question not in seen:
            seen.add(problem.question)
            yield problem


def drawn(suite: Suite, data: str, limit: int | None) -> list[Problem]:
    """The problems of a run on generated data: TEST_PROBLEMS, or the limit if it is larger, or all
    that the split has.

    Args:
        suite: with a generator.
        data: generated[-dev][:SEED].
        limit: of the run.
    """
    split = split_named(data)
    assert split is not None, "a run on real files generates nothing"
    return list(
        problems(suite.name, split[0], max(TEST_PROBLEMS, limit or 0), split[1], allow_fewer=True)
    )


def write_problems(folder: Path, suite: Suite, chosen: Iterable[Problem]) -> None:
    """Write generated problems of a suite to the file that its loader reads, in `folder/data`.

    A loader that also reads a train file gets the same problems there.
    """
    generator = suite.generated
    path = suite.files(True, folder)[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = generator.content([problem.row for problem in chosen])
    path.write_text(text, encoding="utf-8")
    if generator.train_file is not None:
        path.with_name(generator.train_file).write_text(text, encoding="utf-8")


def write_generated(folder: Path, data: str, limit: int | None, suites: Iterable[Suite]) -> None:
    """Write the generated problems of a run on `data` to `folder`, except for files of
    questions."""
    for suite in suites:
        if suite.questions is None:
            write_problems(folder, suite, drawn(suite, data, limit))


# The names of the two fields, and the prompt made of them.
PLAIN = Training("prompt", "response", "{prompt}")


class Exchange(NamedTuple):
    """A user's turn and the response to it, as text."""

    prompt: str
    response: str


def read_exchanges(
    path: Path, option: str, suite: str | None = None, count: int | None = None
) -> list[Exchange]:
    """Read the exchanges of a training file.

    A row is an object with "prompt" and "response", or in the format of a suite's train file.

    Args:
        path: of the file.
        option: the command line option that named it, for messages.
        suite: the only suite whose format is allowed besides; None for all suites'.
        count: how many rows to read from the start; None for all.

    Raises:
        UserError: the file cannot be read, has fewer than `count` rows (or none), or has a row of
            no allowed format.
    """
    with explained(f"{option} {path}: cannot be read", OSError, ValueError):
        rows = list(islice(rows_of(path), count))
    if len(rows) < (count or 1):
        raise UserError(f"{option} {path} has {len(rows)} lines; at least {count or 1} are needed")
    suites = [known for name, known in SUITES.items() if suite in (None, name)]
    formats = [PLAIN, *(known.training for known in suites if known.training)]
    exchanges = []
    for number, row in rows:
        exchange = _exchange(row, formats)
        if exchange is None:
            valid = " or ".join(f'"{form.question}" and "{form.answer}"' for form in formats)
            raise UserError(
                f"{option} {path}, line {number}: an object with {valid} is needed, both text that"
                " is not empty"
            )
        exchanges.append(exchange)
    return exchanges


def _exchange(row: Any, formats: Iterable[Training]) -> Exchange | None:
    """A row by the first format that it fits; None if it fits none."""
    if not isinstance(row, dict):
        return None
    for form in formats:
        question = row.get(form.question)
        answer = row.get(form.answer)
        if is_text(question) and is_text(answer):
            # Not str.format: a question may have braces.
            prompt = form.prompt.replace(f"{{{form.question}}}", question)
            return Exchange(prompt, form.clean(answer))
    return None


class Example(NamedTuple):
    """A prompt and its response as token ids; responses of one call of `encode` are equally
    long."""

    prompt: list[int]
    response: list[int]


def generated_exchanges(suite: str, count: int, split: str = "train") -> list[Exchange]:
    """Generated problems of a suite as exchanges. Raises ValueError if there are fewer than
    `count`."""
    return [
        Exchange(problem.question, problem.response) for problem in problems(suite, split, count)
    ]


def encode(backbone: Backbone, exchanges: list[Exchange], length: int) -> list[Example]:
    """Encode exchanges as token ids.

    Args:
        backbone: the model, for its tokenizer and its longest sequence.
        exchanges: prompts and responses as text.
        length: of every response: its text and EoT, if the model has it, cut or padded with EOS.

    Returns:
        An example per exchange, in the same order.

    Raises:
        UserError: a prompt and its response are too long for the model.
    """
    # Imports torch, which --help does not wait for.
    from model_wrappers.chat import encode_question

    tokenizer = backbone.text_tokenizer()
    end = [] if backbone.eot_id is None else [backbone.eot_id]
    examples = []
    for number, exchange in enumerate(exchanges, 1):
        prompt = encode_question(tokenizer, exchange.prompt)
        text = list(tokenizer(exchange.response, add_special_tokens=False).input_ids)
        if len(prompt) + length > backbone.max_length:
            raise UserError(
                f"training response {number}: prompt of {len(prompt)} tokens and response of"
                f" {length} exceed the limit of {backbone.name}, {backbone.max_length} tokens"
            )
        examples.append(Example(prompt, (text + end + [backbone.eos_id] * length)[:length]))
    return examples
