"""Workers of a Ray cluster: started, handed chunks, replaced when they die.

A worker that dies gives back what it had not finished. Its results leave one by one, so that
nothing that it finished is decoded again. The one that takes its place has its cores and does the
rest.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from harness.cluster.actor import Actor, pickled
from harness.cluster.connect import connected, first_line
from harness.errors import UserError
from harness.records.schema import PromptRecord
from harness.runs.alike import check_workers_alike, device_name
from harness.runs.pool import Chunk, Queue
from harness.runs.resolve import ResolvedRun
from harness.runs.responses import Response, Result

PLACED_WITHIN = 120.0  # seconds for a worker to find room in the cluster
STARTS = 3  # failed starts in a row after which a place is given up
# deaths in a row with nothing decoded between them, or three of every worker if that is more
HOPELESS = 12
RECEIPT_WITHIN = 10.0  # seconds


@dataclass(eq=False)
class RemoteWorker:
    """A worker as this process sees it.

    Attributes:
        actor: Ray's handle.
        waits: the reference of what it is doing; None while it is idle.
        since: time.monotonic() of its start.
        failures: starts in its place that failed in a row.
        name: HOST:PLACE:NUMBER, once it has said where it is.
        host: its machine's name.
        machine: one text for each machine, for hosts may share a name.
        cores: those that it is pinned to.
        gpus: those that Ray gave it.
        ready: its models are loaded.
        chunk: what it decodes now.
    """

    actor: Any
    waits: Any
    since: float
    failures: int = 0
    name: str = ""
    host: str = ""
    machine: str = ""
    cores: tuple[int, ...] = ()
    gpus: tuple[str, ...] = ()
    ready: bool = False
    chunk: Chunk | None = None


class RayPool:
    """The WorkerPool of a run with workers; a context manager.

    Args:
        run: with `workers`.
        scratch: folder for temporary files.
        actor: the class that decodes.

    Raises:
        UserError: on entry, the workers cannot start, or differ.
    """

    def __init__(self, run: ResolvedRun, scratch: Path, actor: type[Any] = Actor) -> None:
        assert run.workers is not None, "a run without workers has no cluster"
        self.config = run.config
        self._settings = run.workers
        self._scratch = scratch
        self._class = actor
        self._workers: list[RemoteWorker] = []
        self._stack = ExitStack()
        self._about: dict[str, dict[str, Any]] = {}
        self._began = False  # whether the session has its entry
        self._deaths = 0  # in a row
        self.description: dict[str, Any] = {}
        self.items: dict[str, Sequence[int]] = {}
        self.problems: dict[str, Any] = {}

    def __enter__(self) -> RayPool:
        with ExitStack() as stack:
            self._ray = stack.enter_context(connected(self._settings))
            self._remote = self._ray.remote(self._class)
            for _ in range(self._settings.count):
                self._workers.append(self._spawn())
            while not all(worker.ready for worker in self._workers):
                self._look_for_room()
                for worker in self._wait():
                    self._advance(worker)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: Any) -> None:
        for worker in self._workers:
            self._ray.kill(worker.actor)
        self._stack.close()

    @property
    def size(self) -> int:
        """How many workers decode now."""
        return max(1, sum(worker.ready for worker in self._workers))

    def prompts(self) -> list[PromptRecord]:
        return self._ray.get(self._workers[0].actor.ask.remote("prompts"))

    def warm_up(self, suite: str, first: dict[str, int]) -> dict[str, float]:
        """Seconds of a first response by method, the mean over the workers."""
        seconds = []
        refs = [
            (worker, worker.actor.ask.remote("warm_up", suite, first)) for worker in self._workers
        ]
        for worker, ref in refs:
            try:
                seconds.append(self._ray.get(ref))
            except self._ray.exceptions.RayError as error:
                self._replace(
                    worker, f"worker {worker.name} died at its first response: {_reason(error)}"
                )
        if not seconds:
            return {}
        return {method: fmean(times[method] for times in seconds) for method in first}

    def results(self, queue: Queue) -> Iterator[tuple[str, Result]]:
        """The name of a worker and a result that it finished, in the order of arrival.

        Raises:
            UserError: something is wrong with the run itself, or no worker is left.
        """
        while True:
            self._hand_out(queue)
            if not any(worker.chunk for worker in self._workers) and queue.empty:
                return
            self._look_for_room()
            for worker in self._wait():
                if worker.chunk is None:
                    self._advance(worker, queue)
                elif (result := self._next(worker, queue)) is not None:
                    if isinstance(result, Response):
                        self._deaths = 0
                    yield worker.name, result

    def _hand_out(self, queue: Queue) -> None:
        """Give every idle worker a chunk, as long as there are any."""
        for worker in self._idle:
            worker.chunk = queue.take(worker.name)
            if worker.chunk is not None:
                decode = worker.actor.decode.options(num_returns="streaming")
                worker.waits = decode.remote(worker.chunk)

    @property
    def _idle(self) -> list[RemoteWorker]:
        return [worker for worker in self._workers if worker.ready and worker.waits is None]

    def about(self) -> dict[str, Any]:
        """{"workers": by name host, device, cores, threads, and receipts at the start and the end}.

        Of a worker that is busy, because the run was stopped, there is no receipt of the end.
        """
        idle = self._idle
        if self._began and idle:
            refs = [worker.actor.ask.remote("receipt") for worker in idle]
            done, _ = self._ray.wait(refs, num_returns=len(refs), timeout=RECEIPT_WITHIN)
            for worker, ref in zip(idle, refs, strict=True):
                # of a worker that died while it was idle
                with suppress(self._ray.exceptions.RayError):
                    self._about[worker.name]["end"] = self._ray.get(ref) if ref in done else None
        self._began = True
        return {"workers": self._about}

    def _spawn(self) -> RemoteWorker:
        """A worker that says where it is."""
        options = {
            "num_cpus": self._settings.threads,
            "num_gpus": self._settings.gpus,
            "max_restarts": 0,
        }
        actor = self._remote.options(**options, scheduling_strategy="SPREAD").remote()
        return RemoteWorker(actor, actor.hello.remote(), time.monotonic())

    def _wait(self) -> list[RemoteWorker]:
        """The workers that have something to say, or none within a second."""
        waiting = {worker.waits: worker for worker in self._workers if worker.waits is not None}
        if not waiting:
            return []
        ready, _ = self._ray.wait(list(waiting), num_returns=len(waiting), timeout=0)
        if not ready:
            ready, _ = self._ray.wait(list(waiting), num_returns=1, timeout=1.0)
        return [waiting[ref] for ref in ready]

    def _advance(self, worker: RemoteWorker, queue: Queue | None = None) -> None:
        """A worker that is starting has answered: load, or be ready.

        Args:
            worker: the one that answered.
            queue: of a run that is going on.
        """
        try:
            self._go_on(worker, self._reply(worker))
        except UserError as error:
            # While a run is going on it is tried again; before, what is wrong is the user's to put
            # right.
            if queue is None:
                raise
            self._replace(worker, first_line(error), worker.failures + 1)

    def _reply(self, worker: RemoteWorker) -> Any:
        """What a worker that is starting has answered. Raises UserError if it could not start."""
        try:
            return self._ray.get(worker.waits)
        except self._ray.exceptions.RayError as error:
            raise UserError(f"a worker could not start: {_reason(error)}") from error

    def _go_on(self, worker: RemoteWorker, reply: Any) -> None:
        if not worker.name:
            self._place(worker, reply)
            options = pickled(self._settings.options)
            folders = (str(Path.cwd()), str(self._scratch))
            worker.waits = worker.actor.load.remote(
                options, self.config, list(worker.cores), *folders
            )
            return
        description, items, receipt = reply
        self.description = self.description or description
        check_workers_alike(self.description, description, worker.name, self.config.timed)
        self.items = self.items or items
        worker.waits = None
        worker.ready = True
        known = self._about.setdefault(worker.name, {"start": receipt})
        known |= {
            "host": worker.host,
            "device": self.config.device,
            "name": device_name(description),
            "cores": list(worker.cores),
            "gpus": list(worker.gpus),
            "threads": self._settings.threads,
            "end": None,
        }

    def _place(self, worker: RemoteWorker, reply: dict[str, Any]) -> None:
        """Give a worker its name, and cores that no other one has. Raises UserError if its machine
        has too few."""
        worker.host = reply["host"]
        worker.machine = reply["machine"]
        worker.gpus = tuple(reply["gpus"])
        taken = {
            core
            for other in self._workers
            if other.machine == worker.machine
            for core in other.cores
        }
        free = [core for core in reply["cores"] if core not in taken]
        if len(free) < self._settings.threads:
            raise UserError(
                f"{worker.host} has {len(reply['cores'])} cores, too few for its workers of"
                f" {self._settings.threads} threads, each on cores of its own; give fewer"
                " --threads, or start Ray there with its own --num-cpus"
            )
        worker.cores = tuple(free[: self._settings.threads])
        place = f"gpu{worker.gpus[0]}" if self._settings.gpus and worker.gpus else "cpu"
        named = sum(bool(other.name) for other in self._workers)
        number = worker.cores[0] if worker.cores else named
        worker.name = f"{worker.host}:{place}:{number}"

    def _next(self, worker: RemoteWorker, queue: Queue) -> Result | None:
        """The next result of a worker that decodes; None if it has finished its chunk, or died."""
        assert worker.chunk is not None
        try:
            return self._ray.get(next(worker.waits))
        except StopIteration:
            worker.waits = worker.chunk = None
        except self._ray.exceptions.RayError as error:
            reason = _reason(error)
            queue.give_back(worker.chunk, reason)
            self._deaths += 1
            self._replace(worker, f"worker {worker.name} died: {reason}")
            if self._deaths >= max(HOPELESS, STARTS * self._settings.count):
                raise UserError(
                    f"{self._deaths} workers died one after the other and decoded nothing, the last"
                    f" one so: {reason}; what is finished is kept: put that right and go on with"
                    " --resume"
                ) from error
        return None

    def _replace(self, worker: RemoteWorker, message: str, failures: int = 0) -> None:
        """Another worker in the place of one that is gone, unless that place failed too often."""
        self._ray.kill(worker.actor)
        self._workers.remove(worker)
        consequence = "its place is given up"
        if failures < STARTS:
            self._workers.append(self._spawn())
            self._workers[-1].failures = failures
            consequence = "another one is started"
        print(f"{message}; {consequence}", file=sys.stderr, flush=True)

    def _look_for_room(self) -> None:
        """Raise UserError if workers wait too long for room: all of those that are to begin, or all
        that are left.

        At once where no node is left, as after the end of Ray's own processes on this machine.
        """
        waiting = [worker for worker in self._workers if not worker.name]
        if self._began and len(waiting) < len(self._workers):
            return
        if self._began and not any(node["Alive"] for node in self._ray.nodes()):
            raise UserError(
                "Ray has no node left: its processes were ended, or its machines are gone; what is"
                " finished is kept: go on with --resume"
            )
        if not self._workers or any(
            time.monotonic() - worker.since > PLACED_WITHIN for worker in waiting
        ):
            raise UserError(
                f"{len(waiting)} of {self._settings.count} workers found no room in the cluster"
                f" within {PLACED_WITHIN:.0f} s: its nodes are busy, or gone; free them"
                + (" and go on with --resume" if self._began else ", or give fewer --workers")
            )


def _reason(error: BaseException) -> str:
    """How a worker died, in a few words.

    Raises:
        UserError: what the worker found wrong with the run itself, as the run without workers
            would say it.
    """
    from ray import exceptions

    cause = getattr(error, "cause", None)
    if isinstance(cause, UserError | ValueError):
        raise UserError(str(cause)) from error
    if isinstance(error, exceptions.OutOfMemoryError):
        return "Ray ended it, for its node was out of memory"
    if isinstance(error, exceptions.RayTaskError):
        return (
            first_line(error) if cause is None else f"{type(cause).__name__}: {first_line(cause)}"
        )
    if "node has died" in str(error) or isinstance(error, exceptions.NodeDiedError):
        return "its node is gone"
    return "its process ended; it was killed, was out of memory, or crashed"
