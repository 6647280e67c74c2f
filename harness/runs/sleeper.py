"""A worker for the benchmark of the driver: it starts at once, for it loads nothing, and sleeps instead of decoding."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from harness.runs.actor import Actor
from harness.runs.chunks import Chunk
from harness.runs.results import Response

ASLEEP = 0.5  # seconds of a response
SLEEPERS = 16
EACH = 40  # responses of each of them


class Sleeper(Actor):
    """A worker that sleeps instead of decoding."""

    def load(self, *given: Any) -> tuple[dict[str, Any], dict[str, int], dict[str, Any]]:
        """A description that says nothing, and enough items."""
        made: dict[str, Any] = {"environment": {}, "weights": {}, "data": {"files": {}}, "code": {}}
        return made, {"asleep": SLEEPERS * EACH}, {}

    def decode(self, chunk: Chunk) -> Iterator[Response]:
        """Records of the time that was slept."""
        for method, item in chunk.responses:
            began = time.perf_counter()
            time.sleep(ASLEEP)
            key = {"method": method, "suite": chunk.suite, "item": item}
            yield Response({**key, "seconds": time.perf_counter() - began, "text": "x" * 600}, [])
