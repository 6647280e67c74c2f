"""Splits of the generated problems, and files of them that lie where the real data would, in the same formats.

Train, dev and test never overlap: a problem's split is a hash of what it asks, whatever its names and wordings.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

from harness.suites.registry import GENERATED, suite_named
from harness.suites.spec import Problem, Suite, split_of

TEST_PROBLEMS = 200
GENERATED_DATA = re.compile(r"generated(-dev)?(?::(\d{1,9}))?")  # --data that stands for a split, and a seed


def split_named(data: object) -> tuple[str, int] | None:
    """The split and the seed that `--data generated[-dev][:SEED]` stands for; None for a folder of real files."""
    found = GENERATED_DATA.fullmatch(data) if isinstance(data, str) else None
    return found and ("dev" if found[1] else "test", int(found[2] or 0))


def draw(suite: Suite, split: str, rng: Random) -> Problem:
    """One problem of a suite's split (`train`, `dev` or `test`), by rejection."""
    generator = suite.generated
    while True:
        problem = generator.draw(rng)
        if split_of(problem) == split:
            return problem


def problems(suite: str, split: str, count: int, seed: int = 0) -> Iterator[Problem]:
    """As `problems_of`, of the suite of this name."""
    return problems_of(suite_named(suite), split, count, seed)


def problems_of(suite: Suite, split: str, count: int, seed: int = 0, fewer: bool = False) -> Iterator[Problem]:
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
            raise ValueError(f"{suite.name} has fewer than {count} different {split} problems; ask for fewer")
        problem = draw(suite, split, rng)
        if problem.question not in seen:
            seen.add(problem.question)
            yield problem


def drawn(suite: Suite, data: str, limit: int | None) -> list[Problem]:
    """The problems of a generated run: TEST_PROBLEMS of a suite or its limit if that is more, or all that the split
    has."""
    named = split_named(data)
    assert named is not None, "a run on real files generates nothing"
    split, seed = named
    return list(problems_of(suite, split, max(TEST_PROBLEMS, limit or 0), seed, fewer=True))


def write_suites(
    folder: Path, split: str = "test", count: int = TEST_PROBLEMS, suites: Iterable[str] = GENERATED
) -> None:
    """Write `count` generated problems of every suite below `folder/data`, as the real files are laid out."""
    for suite in map(suite_named, suites):
        write_problems(folder, suite, problems_of(suite, split, count))


def write_problems(folder: Path, suite: Suite, chosen: Iterable[Problem]) -> None:
    """Write problems of a suite below `folder/data`, as its real file is laid out."""
    generator, path = suite.generated, suite.files(True, folder)[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = generator.content([problem.row for problem in chosen])
    path.write_text(text, encoding="utf-8")
    if generator.train_file is not None:
        path.with_name(generator.train_file).write_text(text, encoding="utf-8")


def write_generated(folder: Path, data: str, limit: int | None, suites: Iterable[Suite]) -> None:
    """Write the generated problems of a run on `data` as `write_problems` does; questions of a file are there."""
    for suite in suites:
        if suite.questions is None:
            write_problems(folder, suite, drawn(suite, data, limit))
