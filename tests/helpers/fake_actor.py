"""A worker's process without a model: it takes no time to start, and dies when a file says so."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.cluster.actor import Actor
from harness.errors import UserError
from harness.records.schema import PromptRecord
from harness.runs.pool import Chunk
from harness.runs.responses import Response

FOLDER = "FAULTS"  # in the environment: where files say what happens
ITEMS = 6
SECONDS = 0.02  # of a response


def fault(folder: Path, kind: str, key: tuple[str, str, int], times: int = 10**6) -> None:
    """Write that a response is `killed`, ends with `memory` or is `wrong`, so many times."""
    path_of(folder, *key).write_text(f"{kind} {times}")


def path_of(folder: Path, method: str, suite: str, item: int) -> Path:
    """The file that says what happens to a response."""
    return folder / f"{method.replace('/', ' by ')} {suite} {item}"


class FakeActor(Actor):
    """Says that it decoded."""

    def load(self, *given: Any) -> tuple[dict[str, Any], dict[str, Sequence[int]], dict[str, Any]]:
        config = given[1]
        device = Path(os.environ[FOLDER], f"device {self.hello()['gpus']}")
        environment = {
            "device": "cpu",
            "cpu": device.read_text() if device.exists() else "Test CPU",
            "gpu": None,
        }
        files = {
            suite: {"name": "test", "sha256": "5" * 64, "items": ITEMS} for suite in config.suites
        }
        made = {"environment": environment, "weights": {}, "data": {"files": files}, "code": {}}
        self._worker: Any = self
        return made, dict.fromkeys(config.suites, range(ITEMS)), {"at": "now"}

    def receipt(self) -> dict[str, Any]:
        return {"at": "later"}

    def prompts(self) -> list[PromptRecord]:
        return []

    def warm_up(self, suite: str, first: dict[str, int]) -> dict[str, float]:
        return dict.fromkeys(first, SECONDS)

    def decode(self, chunk: Chunk) -> Iterator[Response]:
        for method, item in chunk.responses:
            time.sleep(SECONDS)
            happen(path_of(Path(os.environ[FOLDER]), method, chunk.suite, item))
            key = {"method": method, "suite": chunk.suite, "item": item}
            drafts = dict.fromkeys(("proposed", "accepted", "rejected"), 0)
            yield Response(
                {"schema": 1, **key, "seconds": SECONDS, "forwards": 8, "correct": True, **drafts},
                [],
            )


def happen(path: Path) -> None:
    """What a file says of a response, once more."""
    kind, times = path.read_text().split() if path.exists() else ("", "0")
    if int(times) == 0:
        return
    path.write_text(f"{kind} {int(times) - 1}")
    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "memory":
        raise MemoryError("no room for the keys and values")
    raise UserError("the decoder is wrong")
