"""How far a run is: a bar a suite on a terminal, else a line every half minute; speed, time left, accuracy so far.

What `--status` shows in another terminal, or after a run has stopped, is counted from the records; the speed is in
NAME, which a run that goes on replaces every few seconds.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from harness.records.files import each_line
from harness.records.schema import ItemRecord, RunConfig
from harness.records.store import read_meta, write_atomically
from harness.runs.folder import LOCK

NAME = "progress.json"
REDRAW = 0.2  # seconds between two drawings of the bar
LINE_EVERY = 30.0  # seconds between two lines where there is no terminal
NOTE_EVERY = 2.0  # seconds between two notes for --status


class RunProgress:
    """A context manager; suites that are scored after the run show no accuracy.

    totals, done: responses by suite, all and those that are recorded already. folder: where NAME is written; None for
    nowhere. workers: how many decode now. The bar has no thread of its own, which would draw while decoding is timed.
    """

    def __init__(
        self,
        config: RunConfig,
        totals: dict[str, int],
        done: dict[str, int],
        folder: Path | None = None,
        workers: Callable[[], int] = lambda: 1,
        console: Console | None = None,
    ) -> None:
        self._console = console or Console()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
        )
        terminal = self._console.is_terminal
        self._bar = Progress(*columns, console=self._console, auto_refresh=False, disable=not terminal)
        self._titles = {name: config.suites[name].title or name for name in totals}
        self._tasks = {
            name: self._bar.add_task(self._titles[name], total=totals[name], completed=done[name], note="")
            for name in totals
        }
        self._labels = {name: method.label for name, method in config.methods.items()}
        self._totals, self._done, self._before = totals, dict(done), sum(done.values())
        self._folder, self._workers = folder, workers
        self._verdicts: dict[tuple[str, str], list[bool]] = defaultdict(list)
        self._began = self._shown = self._noted = time.monotonic()

    def __enter__(self) -> RunProgress:
        self._bar.start()
        self._began = self._shown = self._noted = time.monotonic()
        return self

    def __exit__(self, *_: Any) -> None:
        self._bar.stop()
        if self._folder is not None:
            (self._folder / NAME).unlink(missing_ok=True)

    def finished(self, suite: str, method: str, verdict: bool | None) -> None:
        """One more response is recorded."""
        self._done[suite] += 1
        if verdict is not None:
            self._verdicts[suite, method].append(verdict)
        now, terminal = time.monotonic(), self._console.is_terminal
        due = now - self._shown > (REDRAW if terminal else LINE_EVERY)
        if due:
            self._shown = now
        if due and not terminal:
            self._console.print(self._line(suite, now), soft_wrap=True, highlight=False)
        if due and terminal:
            note = [self._pace(now), self._accuracy(suite)]
            self._bar.update(self._tasks[suite], note=", ".join(part for part in note if part))
        self._bar.update(self._tasks[suite], advance=1, refresh=due)
        if self._folder is not None and now - self._noted > NOTE_EVERY:
            self._noted = now
            self._note(self._folder, now)

    def _rate(self, now: float) -> float:
        """Responses a second since the run began or went on."""
        return (sum(self._done.values()) - self._before) / max(now - self._began, 1e-9)

    def _left(self, now: float) -> float:
        return (sum(self._totals.values()) - sum(self._done.values())) / self._rate(now)

    def _pace(self, now: float) -> str:
        return pace(self._rate(now), self._left(now), self._workers())

    def _line(self, suite: str, now: float) -> str:
        counts = [f"{self._titles[name]} {self._done[name]}/{self._totals[name]}" for name in self._totals]
        note = [f"{sum(self._done.values())} of {sum(self._totals.values())} responses", self._pace(now), *counts]
        accuracy = self._accuracy(suite)
        return ", ".join([*note, *([f"{self._titles[suite]}: {accuracy}"] if accuracy else [])])

    def _accuracy(self, suite: str) -> str:
        own = {method: verdicts for (of, method), verdicts in self._verdicts.items() if of == suite}
        return "  ".join(f"{self._labels[m]} {100 * sum(v) / len(v):.0f}%" for m, v in own.items())

    def _note(self, folder: Path, now: float) -> None:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        note = {"at": at, "workers": self._workers(), "per_second": self._rate(now), "left_seconds": self._left(now)}
        with suppress(OSError):  # a disk that is full stops the run at its next record, which says so
            write_atomically(folder / NAME, json.dumps(note) + "\n")


def pace(per_second: float, left: float, workers: int) -> str:
    """How fast a run goes, in words. left: seconds."""
    by = f" on {workers} workers" if workers != 1 else ""
    return f"{per_second:.3g} a second{by}, about {duration(left)} left"


def duration(seconds: float) -> str:
    """Seconds in words: "40 s", "6 min", "3 h 20 min"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(timedelta(seconds=seconds) / timedelta(minutes=1))
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def describe_status(folder: Path) -> str:
    """Responses recorded by suite, and whether the run goes on, how fast, and for how long. Raises UserError."""
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
    return "\n".join([_state(folder, sum(done.values()) >= sum(totals.values())), *lines])


def _state(folder: Path, complete: bool) -> str:
    if held(folder):
        try:
            note = json.loads((folder / NAME).read_text(encoding="utf-8"))
            return f"goes on: {pace(note['per_second'], note['left_seconds'], note['workers'])} ({note['at']})"
        except (OSError, ValueError, KeyError, TypeError):  # not there yet, or decoding is over
            return "goes on: scoring and tables" if complete else "goes on: no speed is known yet"
    if complete:
        return "finished"
    return f"stopped; go on with the same options and --resume --out {folder}"


def held(folder: Path) -> bool:
    """Whether a process works on a run's folder."""
    if not (folder / LOCK).exists():
        return False
    try:
        with FileLock(folder / LOCK, timeout=0):
            return False
    except Timeout:
        return True
