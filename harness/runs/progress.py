"""How far a run is: a bar a suite on a terminal, else a line every half minute. `--status` counts the records."""

import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from harness.records.files import each_line
from harness.records.schema import ItemRecord, RunConfig
from harness.records.store import read_meta
from harness.runs.folder import LOCK

EVERY = {True: 0.2, False: 30.0}  # seconds between two drawings, on a terminal or not


class RunProgress:
    """A context manager that shows how many responses are recorded.

    totals, done: responses by suite, all and those that are recorded already. The bars have no thread of their own,
    which would draw while decoding is timed.
    """

    def __init__(
        self, config: RunConfig, totals: dict[str, int], done: dict[str, int], console: Console | None = None
    ) -> None:
        self._console = console or Console()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        terminal = self._console.is_terminal
        self._bars = Progress(*columns, console=self._console, auto_refresh=False, disable=not terminal)
        self._tasks = {
            name: self._bars.add_task(config.suites[name].title or name, total=totals[name], completed=done[name])
            for name in totals
        }
        self._before = sum(done.values())
        self._began = self._shown = time.monotonic()

    def __enter__(self) -> "RunProgress":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def finished(self, suite: str) -> None:
        """One more response is recorded."""
        now, terminal = time.monotonic(), self._console.is_terminal
        due = now - self._shown > EVERY[terminal]
        self._shown = now if due else self._shown
        self._bars.update(self._tasks[suite], advance=1, refresh=due)
        if due and not terminal:
            tasks = self._bars.tasks
            done, total = sum(task.completed for task in tasks), sum(task.total or 0 for task in tasks)
            left = (total - done) * (now - self._began) / (done - self._before)
            counts = ", ".join(f"{task.description} {task.completed:.0f}/{task.total:.0f}" for task in tasks)
            text = f"{done:.0f} of {total:.0f} responses, about {duration(left)} left: {counts}"
            self._console.print(text, soft_wrap=True, highlight=False)


def duration(seconds: float) -> str:
    """Seconds in words: "40 s", "6 min", "3 h 20 min"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(timedelta(seconds=seconds) / timedelta(minutes=1))
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def describe_status(folder: Path) -> str:
    """Responses recorded by suite, and whether a process works on the run. Raises UserError for no run."""
    meta = read_meta(folder)
    methods, files = len(meta.config.methods), meta.data.get("files") or {}
    totals = {suite: methods * files.get(suite, {}).get("items", 0) for suite in meta.config.suites}
    done = Counter(row["suite"] for _, row in each_line(folder / "items.jsonl", ItemRecord))
    lines = [
        f"{meta.config.suites[suite].title or suite}: {done[suite]} of {total} responses"
        for suite, total in totals.items()
    ]
    left_out = len(meta.sessions[-1].get("left_out", [])) if meta.sessions else 0
    if left_out:
        lines.append(f"left out: {left_out}")
    if held(folder):
        state = "goes on"
    elif sum(done.values()) >= sum(totals.values()):
        state = "finished"
    else:
        state = f"stopped; go on with the same options and --resume --out {folder}"
    return "\n".join([state, *lines])


def held(folder: Path) -> bool:
    """Whether a process works on a run's folder."""
    if not (folder / LOCK).exists():
        return False
    try:
        with FileLock(folder / LOCK, timeout=0):
            return False
    except Timeout:
        return True
