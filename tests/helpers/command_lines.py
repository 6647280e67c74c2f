"""Command lines: what they resolve to, and what a command says that refuses them."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from harness.errors import one_line_errors
from harness.options import parsed
from harness.runs.options import RunOptions
from harness.runs.resolve import ResolvedRun, resolve


def refused(
    main: Callable[[list[str]], int], line: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> str:
    """What a refused command line prints: one line on stderr, exit code 2."""
    capsys.readouterr()
    assert one_line_errors(lambda: main(list(line))) == 2
    said = capsys.readouterr().err.splitlines(keepends=True)
    # of a busy machine
    error = "".join(line for line in said if not line.startswith("warning: other programs"))
    assert error.startswith("error: ") and error.count("\n") == 1, error
    return error


def resolved_run(*line: str) -> ResolvedRun:
    """The run that a command line asks for."""
    return resolve(parsed(RunOptions, list(line)))


def config_of(*line: str) -> dict[str, Any]:
    """Its configuration as run.json has it."""
    return resolved_run(*line).config.to_json()
