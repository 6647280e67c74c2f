"""A process for each method, on this machine: what a decoder does to its process, no other one decodes with.

One process runs at a time and the others stand still, so that a thread which a decoder left behind takes no time from
the next method. This keeps accidents apart, not intent: every process has the user's rights.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from harness.cluster.actor import Actor
from harness.cluster.pickling import pickled
from harness.errors import UserError
from harness.records.schema import PromptRecord
from harness.runs.chunks import Chunk, Queue
from harness.runs.resolve import ResolvedRun
from harness.runs.responses import Result, Sample

ROOT = Path(__file__).resolve().parents[2]
END_WITH_PARENT = (1, signal.SIGKILL)  # prctl's PR_SET_PDEATHSIG


class Turn:
    """The process of a method. Raises UserError for what goes wrong in it, and if it ends."""

    def __init__(self, method: str) -> None:
        self._method = method
        self._connection, there = Pipe()
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.cluster.turns", str(there.fileno()), str(os.getpid())],
            pass_fds=[there.fileno()],
            env=os.environ | {"PYTHONPATH": path},
        )
        there.close()

    def ask(self, name: str, *given: Any) -> Iterator[Any]:
        """What a method of `Actor` returns, or yields, while the process runs."""
        self._process.send_signal(signal.SIGCONT)
        try:
            self._connection.send((name, given))
            while (reply := self._connection.recv())[0] != "end":
                if reply[0] == "error":
                    raise UserError(reply[1])
                yield reply[1]
        except (EOFError, OSError) as error:
            raise UserError(
                f"the process of {self._method} ended: by its decoder, or out of memory; what is finished is kept, and "
                "--resume goes on"
            ) from error
        self._process.send_signal(signal.SIGSTOP)

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._connection.close()


class TurnPool:
    """A context manager: the WorkerPool of a run with a process for each method. run: one that is isolated.

    scratch: for what is not kept. Raises UserError if a process cannot load the run.
    """

    size = 1

    def __init__(self, run: ResolvedRun, scratch: Path) -> None:
        self._run, self._scratch = run, scratch
        self._turns: dict[str, Turn] = {}
        self.description: dict[str, Any] = {}
        self.items: dict[str, int] = {}

    def __enter__(self) -> TurnPool:
        assert self._run.isolated is not None, "a run that is not isolated has no options to start another process with"
        options, folders = pickled(self._run.isolated), (str(Path.cwd()), str(self._scratch))
        try:
            for method in self._run.config.methods:
                self._turns[method] = Turn(method)
                loaded = self._turns[method].ask("load", options, self._run.config, [], *folders)
                ((self.description, self.items, _),) = loaded
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        for turn in self._turns.values():
            turn.end()

    def prompts(self) -> list[PromptRecord]:
        ((prompts),) = next(iter(self._turns.values())).ask("ask", "prompts")
        return prompts

    def warm_up(self, suite: str, first: dict[str, int]) -> dict[str, Sample]:
        found: dict[str, Sample] = {}
        for method, item in first.items():
            for samples in self._turns[method].ask("ask", "warm_up", suite, {method: item}):
                found |= samples
        return found

    def results(self, queue: Queue) -> Iterator[tuple[str, Result]]:
        while (chunk := queue.take()) is not None:
            for method, items in chunk.pending.items():
                for result in self._turns[method].ask("decode", Chunk(chunk.suite, {method: items})):
                    yield "", result

    def about(self) -> dict[str, Any]:
        return {}


def serve(connection: Connection) -> None:
    """Do what is asked until nothing more comes."""
    actor = Actor()
    with suppress(EOFError):
        while True:
            name, given = connection.recv()
            try:
                found = getattr(actor, name)(*given)
                for each in found if name == "decode" else [found]:
                    connection.send(("one", each))
            except (UserError, ValueError) as error:
                connection.send(("error", str(error)))
            else:
                connection.send(("end", None))


def end_with(parent: int) -> None:
    """End this process as soon as its parent ends, also while it stands still and does not see its pipe close."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(*END_WITH_PARENT, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    end_with(int(sys.argv[2]))
    serve(Connection(int(sys.argv[1])))
