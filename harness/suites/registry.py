"""The suites by name, their generated problems by split, and exchanges to train on.

A new suite is one file here and one entry in ALL; `opencompass:NAME`, any generation configuration
of OpenCompass, and `NAME=FILE`, a file of questions, are suites too. Train, dev and test never
overlap: a problem's split is a hash of what it asks, whatever its names and wordings.
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
from harness.suites.spec import FOREIGN, Problem, Rounds, Suite, Training, split_of
from harness.suites.texts import is_text
from model_wrappers.decoders import METHODS
from model_wrappers.options import meant

if TYPE_CHECKING:
    from model_wrappers import Backbone

SHOTS = 4
MOST_DRAWS = 10_000  # of problems of any split, for one of a split


def draw(suite: Suite, split: str, rng: Random) -> Problem:
    """One problem of a suite's split (`train`, `dev` or `test`), by rejection. Raises ValueError if
    none comes."""
    generator = suite.generated
    for _ in range(MOST_DRAWS):
        problem = generator.draw(rng)
        if split_of(problem) == split:
            return problem
    raise ValueError(
        f"{suite.name} draws no {split} problem in {MOST_DRAWS}: it needs more different questions"
    )


def with_shots(suite: Suite) -> Suite:
    """The suite NAME-4shot: the same generated problems, with the same SHOTS training problems
    solved before each."""
    generator = suite.generated
    rng = Random(f"{suite.name} shots")
    solved: Rounds = []
    for problem in (draw(suite, "train", rng) for _ in range(SHOTS)):
        solved += [
            {"role": "HUMAN", "prompt": problem.question},
            {"role": "BOT", "prompt": problem.response},
        ]
    return Suite(
        name=f"{suite.name}-{SHOTS}shot",
        title=f"{suite.title}, {SHOTS}-shot",
        lengths=suite.lengths,
        generator=replace(generator, rounds=[*solved, *generator.rounds], problems_of=suite.name),
        executes=suite.executes,
    )


LONG = (gsm8k.LONG, mbpp.LONG)
TABLE = Path(__file__).with_name("configurations.toml").read_text(encoding="utf-8")
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
# and those of plugins and files, once they are named
SUITES: dict[str, Suite] = {suite.name: suite for suite in ALL}
GENERATED = tuple(name for name, suite in SUITES.items() if suite.generator is not None)
PAPER_SUITES = ("gsm8k", "math", "humaneval", "mbpp")
# Of tables, beside a column for each suite, and their headings, which --columns takes too.
COLUMNS = ("mean", "all", "checkpoint", "acc.", "speed", "fwd.", "acceptance", "points")
FOREIGN_LENGTHS = {"gen_length": 256, "block_length": 32}


def suite_named(name: str) -> Suite:
    """A suite of ALL, or one of OpenCompass's configurations. Raises UserError for an unknown
    one."""
    if name.startswith(FOREIGN) and name != FOREIGN:
        configuration = name.removeprefix(FOREIGN)
        of_base = next(
            (each.of_base for each in ALL if configuration.startswith(f"{each.name}_gen")), ""
        )
        return Suite(
            name,
            configuration,
            FOREIGN_LENGTHS,
            configuration,
            foreign=True,
            of_base=of_base,
        )
    if name not in SUITES:
        wrong = f"unknown suite {name}" if name else "--suite names no suite"
        forms = [f"{FOREIGN}NAME", "NAME=FILE.jsonl"]
        raise UserError(
            wrong + meant(name, [*forms, *SUITES], {"a method, for --methods": METHODS})
        )
    return SUITES[name]


def suites_named(names: str | Iterable[str]) -> dict[str, Suite]:
    """The suites of comma-separated lists, by name. Raises UserError for bad names."""
    chosen: dict[str, Suite] = {}
    for element in elements_of(names if isinstance(names, str) else ";".join(names)):
        name = element
        if "=" in element:
            name, questions = questions_of(element)
            add_questions(name, questions)
        if name in chosen:
            raise UserError(f"--suite names a suite twice: {name}")
        suite = suite_named(name)
        columns = {*COLUMNS, *(each.title.casefold() for each in chosen.values())}
        if taken := columns & {name.casefold(), suite.title.casefold()}:
            raise UserError(
                f"--suite {element}: tables have a column {taken.pop()} already; choose another"
                " name"
            )
        chosen[name] = suite
    return chosen or {"": suite_named("")}


def add_questions(name: str, questions: Questions) -> None:
    """Make a file of questions a suite. Raises UserError for the name of another kind of suite."""
    if name in SUITES and SUITES[name].questions is None:
        raise UserError(f"--suite {name}=...: a suite {name} is there already; choose another name")
    executes = questions.judge == TESTS
    SUITES[name] = Suite(name, name, FOREIGN_LENGTHS, questions=questions, executes=executes)


TEST_PROBLEMS = 200
# --data that stands for a split, and a seed
GENERATED_DATA = re.compile(r"generated(-dev)?(?::([0-9]{1,9}))?")


def split_named(data: object) -> tuple[str, int] | None:
    """The split and the seed that `--data generated[-dev][:SEED]` stands for; None for a folder of
    real files."""
    found = GENERATED_DATA.fullmatch(data) if isinstance(data, str) else None
    return found and ("dev" if found[1] else "test", int(found[2] or 0))


def problems(suite: str, split: str, count: int, seed: int = 0) -> Iterator[Problem]:
    """As `problems_of`, of the suite of this name."""
    return problems_of(suite_named(suite), split, count, seed)


def problems_of(
    suite: Suite, split: str, count: int, seed: int = 0, fewer: bool = False
) -> Iterator[Problem]:
    """`count` problems with different questions, the same for the same arguments.

    fewer: end where the split does not seem to hold that many. Otherwise that raises ValueError.
    """
    rng = Random(f"{suite.generated.problems_of or suite.name} {split} {seed}")
    seen: set[str] = set()
    draws = 0
    while len(seen) < count:
        draws += 1
        if draws > 20 * count + 1000:
            if fewer:
                return
            raise ValueError(
                f"{suite.name} has fewer than {count} different {split} problems; ask for fewer"
            )
        problem = draw(suite, split, rng)
        if problem.question not in seen:
            seen.add(problem.question)
            yield problem


def drawn(suite: Suite, data: str, limit: int | None) -> list[Problem]:
    """The problems of a generated run: TEST_PROBLEMS, or the limit if that is more, or all that the
    split has."""
    named = split_named(data)
    assert named is not None, "a run on real files generates nothing"
    return list(problems_of(suite, named[0], max(TEST_PROBLEMS, limit or 0), named[1], fewer=True))


def write_problems(folder: Path, suite: Suite, chosen: Iterable[Problem]) -> None:
    """Write problems of a suite below `folder/data`, as its real file is laid out."""
    generator = suite.generated
    path = suite.files(True, folder)[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = generator.content([problem.row for problem in chosen])
    path.write_text(text, encoding="utf-8")
    if generator.train_file is not None:
        path.with_name(generator.train_file).write_text(text, encoding="utf-8")


def write_generated(folder: Path, data: str, limit: int | None, suites: Iterable[Suite]) -> None:
    """Write the generated problems of a run on `data` as `write_problems` does; questions of a file
    are there."""
    for suite in suites:
        if suite.questions is None:
            write_problems(folder, suite, drawn(suite, data, limit))


PLAIN = Training("prompt", "response", "{prompt}")


class Exchange(NamedTuple):
    """A user's turn and the response to it, as text."""

    prompt: str
    response: str


def read_exchanges(
    path: Path, option: str, suite: str | None = None, count: int | None = None
) -> list[Exchange]:
    """The rows of a file, or the first `count`: of prompt and response, or of a suite's train file.

    suite: the only one whose format is taken (None: any). Raises UserError, with the command line's
    `option`, for a file that is too short, and for a bad line, naming it.
    """
    with explained(f"{option} {path}: cannot be read", OSError, ValueError):
        rows = list(islice(rows_of(path), count))
    if len(rows) < (count or 1):
        raise UserError(f"{option} {path} has {len(rows)} lines; at least {count or 1} are needed")
    suites = [each for name, each in SUITES.items() if suite in (None, name)]
    formats = [PLAIN, *(each.training for each in suites if each.training)]
    exchanges = []
    for number, row in rows:
        exchange = _exchange(row, formats)
        if exchange is None:
            wanted = " or ".join(f'"{each.question}" and "{each.answer}"' for each in formats)
            raise UserError(
                f"{option} {path}, line {number}: an object with {wanted} is needed, both text that"
                " is not empty"
            )
        exchanges.append(exchange)
    return exchanges


def _exchange(row: Any, formats: Iterable[Training]) -> Exchange | None:
    """A row in the first format that it has; None if it has none of them."""
    if not isinstance(row, dict):
        return None
    for form in formats:
        question = row.get(form.question)
        answer = row.get(form.answer)
        if is_text(question) and is_text(answer):
            prompt = form.prompt.replace(f"{{{form.question}}}", question)
            return Exchange(prompt, form.clean(answer))
    return None


class Example(NamedTuple):
    """A prompt and its response, as ids; all responses of one estimate have the same length."""

    prompt: list[int]
    response: list[int]


def generated_exchanges(suite: str, count: int, split: str = "train") -> list[Exchange]:
    """`count` of nano's generated problems. Raises ValueError if there are fewer."""
    return [
        Exchange(problem.question, problem.response) for problem in problems(suite, split, count)
    ]


def encode(backbone: Backbone, exchanges: list[Exchange], length: int) -> list[Example]:
    """The exchanges as ids, every response cut or padded with EOS to `length`. Raises UserError for
    one too long."""
    from model_wrappers.chat import encode_question  # torch: not for --help

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
