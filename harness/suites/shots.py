"""A suite's generated problems with solved ones before each, as real suites have: prompts of several hundred tokens."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from harness.suites.spec import Rounds, Suite, split_of

SHOTS = 4


def with_shots(suite: Suite) -> Suite:
    """The suite NAME-4shot: the same generated problems, SHOTS solved training problems before each, the same ones.

    Raises ValueError for a suite without generated problems.
    """
    generator = suite.generator
    if generator is None:
        raise ValueError(f"suite {suite.name} has no generated problems")
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
