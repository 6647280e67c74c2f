"""What a worker gives back, for the process that records it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from harness.records.traces import TraceRecord


class Sample(NamedTuple):
    """What a response cost that is not recorded: seconds, and calls of the model."""

    seconds: float
    calls: float


@dataclass(frozen=True)
class Response:
    """A finished response: its line of items.jsonl, those of windows.jsonl, and its trace, if the run has traces."""

    item: dict[str, Any]
    windows: list[dict[str, Any]]
    trace: TraceRecord | None = None


@dataclass(frozen=True)
class Passes:
    """Seconds of single passes: a line of passes.jsonl."""

    line: dict[str, Any]


Result = Response | Passes
