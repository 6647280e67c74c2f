"""Command lines that a command refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from harness.errors import one_line_errors


def refused(main: Callable[[list[str]], int], line: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a refused command line prints: one line on stderr, exit code 2."""
    capsys.readouterr()
    assert one_line_errors(lambda: main(list(line))) == 2
    said = capsys.readouterr().err.splitlines(keepends=True)
    error = "".join(line for line in said if not line.startswith("warning: other programs"))  # of a busy machine
    assert error.startswith("error: ") and error.count("\n") == 1, error
    return error
