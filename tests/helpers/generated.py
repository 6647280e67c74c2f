"""Generated problems in the layout of the real files."""

from collections.abc import Iterable
from pathlib import Path

from harness.suites.registry import (
    GENERATED,
    TEST_PROBLEMS,
    problems,
    suite_named,
    write_problems,
)


def write_suites(
    folder: Path, split: str = "test", count: int = TEST_PROBLEMS, suites: Iterable[str] = GENERATED
) -> None:
    """Write `count` generated problems of every suite below `folder/data`, as the real files are
    laid out."""
    for suite in map(suite_named, suites):
        write_problems(folder, suite, problems(suite.name, split, count))
