"""Progress: a bar on a terminal, a line now and then elsewhere, with what is done, what is left and how good it is."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from harness.records.schema import Method, RunConfig, SuiteName
from harness.runs import progress
from harness.runs.progress import RunProgress, duration

CONFIG = RunConfig(
    methods={"llada": Method(label="LLaDA"), "fef-2": Method(label="FeF")}, suites={"math": SuiteName("MATH")}
)


def test_without_a_terminal_there_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 20))  # seconds; read at the start, and before each line is due or not
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    out = io.StringIO()
    with RunProgress(CONFIG, {"math": 10}, {"math": 2}, console=Console(file=out)) as run:
        for number in range(4):
            run.finished("math", ("llada", "fef-2")[number % 2], verdict=number < 3)
    lines = out.getvalue().splitlines()
    assert 1 <= len(lines) < 4, lines
    assert re.match(
        r"(\d) of 10 responses, [\d.]+ a second, about \d+ \w+ left, MATH \1/10, MATH: LLaDA 100%", lines[-1]
    )


def test_suites_that_are_scored_later_show_no_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 100))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    out = io.StringIO()
    with RunProgress(CONFIG, {"math": 4}, {"math": 0}, console=Console(file=out)) as run:
        run.finished("math", "llada", verdict=None)
    assert out.getvalue().splitlines()[-1].endswith("left, MATH 1/4")


def test_on_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    with RunProgress(
        CONFIG, {"math": 2}, {"math": 0}, console=Console(file=out, force_terminal=True, width=100)
    ) as run:
        run.finished("math", "llada", verdict=True)
        run.finished("math", "fef-2", verdict=True)
    assert "2/2" in out.getvalue() and "responses" not in out.getvalue()


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "1 s"), (40, "40 s"), (100, "2 min"), (3600, "60 min"), (12_000, "3 h 20 min")]
)
def test_durations_are_in_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words
