"""Splits of the generated problems, and test files in the formats that OpenCompass's datasets read.

Generated and real problems take one way: `write_suites` lays out the same files in the same folders as the real data,
so `harness/run.py` cannot tell them apart. Train, dev and test never overlap: the split of a problem is a hash of what
it asks, whatever its names and wordings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

from harness.suites.registry import GENERATED, generated_file, generator_of
from harness.suites.spec import Problem, split_of

SPLITS = ("train", "dev", "test")
TEST_PROBLEMS = 200


def draw(suite: str, split: str, rng: Random) -> Problem:
    """One problem of a suite's split, by rejection. Raises ValueError for an unknown suite or split."""
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}; valid: {', '.join(SPLITS)}")
    generator = generator_of(suite)
    while True:
        problem = generator.draw(rng)
        if split_of(problem) == split:
            return problem


def problems(suite: str, split: str, count: int, seed: int = 0) -> Iterator[Problem]:
    """`count` problems with different questions, the same for the same arguments.

    Raises ValueError if the split does not seem to hold that many.
    """
    rng = Random(f"{generator_of(suite).problems_of or suite} {split} {seed}")
    seen: set[str] = set()
    draws = 0
    while len(seen) < count:
        draws += 1
        if draws > 20 * count + 1000:
            raise ValueError(f"{suite} has fewer than {count} different {split} problems; ask for fewer")
        problem = draw(suite, split, rng)
        if problem.question not in seen:
            seen.add(problem.question)
            yield problem


def write_suites(
    folder: Path, split: str = "test", count: int = TEST_PROBLEMS, suites: Iterable[str] = GENERATED
) -> None:
    """Write `count` generated problems of every suite below `folder/data`, as the real files are laid out."""
    for name in suites:
        generator, path = generator_of(name), generated_file(name, folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = generator.content([problem.row for problem in problems(name, split, count)])
        path.write_text(text, encoding="utf-8")
        if generator.train_file is not None:
            path.with_name(generator.train_file).write_text(text, encoding="utf-8")
