"""The suites by name. A new one is one file here and one entry in ALL; `opencompass:NAME`, any generation configuration
of OpenCompass, and `NAME=FILE`, a file of questions, are suites too."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from harness.elements import elements_of
from harness.errors import UserError
from harness.suites import gsm8k, humaneval, lists, math, mbpp, parallelbench
from harness.suites.questions import Questions, questions_of
from harness.suites.spec import Rounds, Suite, split_of

SHOTS = 4


def with_shots(suite: Suite) -> Suite:
    """The suite NAME-4shot: the same generated problems with SHOTS training problems, always the same, solved before
    each; prompts then have several hundred tokens. Raises UserError for a suite without generated problems."""
    generator = suite.generated
    rng = Random(f"{suite.name} shots")
    solved: Rounds = []
    while len(solved) < 2 * SHOTS:
        problem = generator.draw(rng)
        if split_of(problem) == "train":
            solved += [{"role": "HUMAN", "prompt": problem.question}, {"role": "BOT", "prompt": problem.response}]
    return Suite(
        name=f"{suite.name}-{SHOTS}shot",
        title=f"{suite.title}, {SHOTS}-shot",
        lengths=suite.lengths,
        generator=replace(generator, rounds=[*solved, *generator.rounds], problems_of=suite.name),
        executes=suite.executes,
    )


LONG = (gsm8k.LONG, mbpp.LONG)
ALL = (
    *(gsm8k.SUITE, math.SUITE, math.MATH_500, humaneval.SUITE, mbpp.SUITE, lists.SUITE, *LONG),
    *map(with_shots, (gsm8k.SUITE, math.SUITE, humaneval.SUITE, mbpp.SUITE, *LONG)),
    *(gsm8k.HARD, mbpp.HARD),
    *lists.PARALLEL,
)
BUILT_IN = frozenset(suite.name for suite in ALL)
SUITES: dict[str, Suite] = {suite.name: suite for suite in ALL}  # and those of plugins and files, once they are named
GENERATED = tuple(name for name, suite in SUITES.items() if suite.generator is not None)
PAPER_SUITES = ("gsm8k", "math", "humaneval", "mbpp")
FOREIGN = "opencompass:"  # then the name of one of OpenCompass's configurations
FOREIGN_LENGTHS = {"gen_length": 256, "block_length": 32}


def suite_named(name: str) -> Suite:
    """A suite of ALL, or one of OpenCompass's configurations. Raises UserError for an unknown one."""
    if name.startswith(FOREIGN) and name != FOREIGN:
        configuration = name.removeprefix(FOREIGN)
        return Suite(name, configuration, FOREIGN_LENGTHS, configuration, executes=True, foreign=True)
    if name not in SUITES:
        wrong = f"unknown suite {name}" if name else "--suite names no suite"
        raise UserError(f"{wrong}; valid: {valid()}")
    return SUITES[name]


def suites_named(names: str | Iterable[str], data: str | None = None) -> dict[str, Suite]:
    """The suites of comma-separated lists, by name. Raises UserError for an unknown or repeated one.

    data: the checkout of ParallelBench for elements parallelbench:GROUP/TASK.
    """
    chosen: dict[str, Suite] = {}
    for element in elements_of(names if isinstance(names, str) else ";".join(names)):
        name = element
        if "=" in element:
            name, questions = questions_of(element)
            add_questions(name, questions)
        elif element.startswith(parallelbench.PREFIX):
            name, file, judge = parallelbench.task_of(element, data)
            add_questions(name, Questions(file, prompt=parallelbench.PROMPT, judge=judge))
        if name in chosen:
            raise UserError(f"--suite names a suite twice: {name}")
        chosen[name] = suite_named(name)
    return chosen or {"": suite_named("")}


def add_questions(name: str, questions: Questions) -> None:
    """Make a file of questions a suite. Raises UserError for the name of another kind of suite."""
    if name in SUITES and SUITES[name].questions is None:
        raise UserError(f"--suite {name}=...: a suite {name} is there already; choose another name")
    SUITES[name] = Suite(name, name, FOREIGN_LENGTHS, questions=questions)


def valid() -> str:
    """What a suite may be, for messages."""
    return f"{', '.join(SUITES)}, {FOREIGN}NAME, {parallelbench.PREFIX}GROUP/TASK, NAME=FILE.jsonl"
