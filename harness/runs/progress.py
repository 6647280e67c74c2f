"""How far a run is: a bar on a terminal, else a line every half minute; items done, time left, accuracy so far."""

from __future__ import annotations

import time
from collections import defaultdict
from datetime import timedelta
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from harness.records.schema import RunConfig

REDRAW = 0.2  # seconds between two drawings of the bar
LINE_EVERY = 30.0  # seconds between two lines where there is no terminal


class RunProgress:
    """A context manager; suites that are scored after the run show no accuracy.

    total, done: responses of the run, and those that are recorded already. The bar has no thread of its own, which
    would draw while decoding is timed.
    """

    def __init__(self, config: RunConfig, total: int, done: int, console: Console | None = None) -> None:
        self._console = console or Console()
        columns = (TextColumn("{task.fields[suite]}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Progress(
            *columns,
            TextColumn("{task.fields[accuracy]}"),
            console=self._console,
            auto_refresh=False,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total, completed=done, suite="", accuracy="")
        self._titles = {name: suite.title or name for name, suite in config.suites.items()}
        self._labels = {name: method.label for name, method in config.methods.items()}
        self._total, self._done, self._before = total, done, done
        self._verdicts: dict[tuple[str, str], list[bool]] = defaultdict(list)
        self._began = self._shown = time.monotonic()

    def __enter__(self) -> RunProgress:
        self._bar.start()
        self._began = self._shown = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def finished(self, suite: str, method: str, verdict: bool | None) -> None:
        """One more response is recorded."""
        self._done += 1
        if verdict is not None:
            self._verdicts[suite, method].append(verdict)
        terminal = self._console.is_terminal
        due = time.monotonic() - self._shown > (REDRAW if terminal else LINE_EVERY)
        if due:
            self._shown = time.monotonic()
        if due and not terminal:
            self._console.print(self._line(suite), soft_wrap=True, highlight=False)
        if due and terminal:
            self._bar.update(self._task, accuracy=self._accuracy(suite))
        self._bar.update(self._task, advance=1, suite=self._titles[suite], refresh=due)

    def _line(self, suite: str) -> str:
        elapsed = time.monotonic() - self._began
        left = elapsed / (self._done - self._before) * (self._total - self._done)
        parts = [f"{self._done} of {self._total} responses", f"about {duration(left)} left", self._titles[suite]]
        return ", ".join(part for part in [*parts, self._accuracy(suite)] if part)

    def _accuracy(self, suite: str) -> str:
        own = {method: verdicts for (of, method), verdicts in self._verdicts.items() if of == suite}
        return "  ".join(f"{self._labels[m]} {100 * sum(v) / len(v):.0f}%" for m, v in own.items())


def duration(seconds: float) -> str:
    """Seconds in words: "40 s", "6 min", "3 h 20 min"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(timedelta(seconds=seconds) / timedelta(minutes=1))
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
