"""Workers of a Ray cluster: started, handed chunks, replaced when they die.

A worker that dies gives back what it had not finished. Its results leave one by one, so that nothing that it finished
is decoded again. The one that takes its place has its cores and does the rest.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from types import TracebackType
from typing import Any

from harness.errors import UserError
from harness.records.schema import PromptRecord, RunConfig
from harness.runs.actor import Actor
from harness.runs.alike import check_alike, device_name
from harness.runs.chunks import Chunk, Queue
from harness.runs.crew import Workers
from harness.runs.ray_cluster import connected, first_line
from harness.runs.results import Response, Result, Sample

PLACED_WITHIN = 120.0  # seconds for a worker to find room in the cluster
STARTS = 3  # failed starts in a row after which a place is given up
HOPELESS = 12  # deaths in a row with nothing decoded between them, or three of every worker if that is more
RECEIPT_WITHIN = 10.0  # seconds


@dataclass(eq=False)
class Member:
    """A worker as this process sees it. waits: for what it is doing; None while it is idle."""

    actor: Any
    waits: Any
    since: float
    failures: int = 0  # starts in its place that failed in a row
    name: str = ""
    host: str = ""
    machine: str = ""
    cores: tuple[int, ...] = ()
    gpus: tuple[str, ...] = ()
    ready: bool = False
    chunk: Chunk | None = None


class RayCrew:
    """A context manager. workers: what was asked for. data: folder of real problems; scratch: for what is not kept.

    actor: the class that decodes. Raises UserError if the workers cannot start, or differ.
    """

    def __init__(
        self, config: RunConfig, workers: Workers, data: Path, scratch: Path, actor: type[Any] = Actor
    ) -> None:
        self._config, self._workers, self._scratch, self._class = config, workers, scratch, actor
        self._data = None if data == scratch else str(data.resolve())
        self._members: list[Member] = []
        self._stack = ExitStack()
        self._about: dict[str, dict[str, Any]] = {}
        self._began = False  # whether the session has its entry
        self._deaths = 0  # in a row
        self.description: dict[str, Any] = {}
        self.items: dict[str, int] = {}

    def __enter__(self) -> RayCrew:
        with ExitStack() as stack:
            self._ray = stack.enter_context(connected(self._workers))
            self._remote = self._ray.remote(self._class)
            for _ in range(self._workers.count):
                self._members.append(self._spawn())
            while not all(member.ready for member in self._members):
                self._look_for_room()
                for member in self._wait():
                    self._advance(member)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self._members:
            self._ray.kill(member.actor)
        self._stack.close()

    @property
    def size(self) -> int:
        """How many workers decode now."""
        return max(1, sum(member.ready for member in self._members))

    def prompts(self) -> list[PromptRecord]:
        """As Crew says."""
        prompts: list[PromptRecord] = self._ray.get(self._members[0].actor.prompts.remote())
        return prompts

    def warm_up(self, suite: str, first: dict[str, int]) -> dict[str, Sample]:
        """As Crew says; the mean of the workers."""
        found = []
        asked = [(member, member.actor.warm_up.remote(suite, first)) for member in self._members]
        for member, ref in asked:
            try:
                found.append(self._ray.get(ref))
            except self._ray.exceptions.RayError as error:
                if (wrong := _user_error(error)) is not None:
                    raise wrong from error
                self._replace(member, f"worker {member.name} died at its first response: {_reason(error)}")
        by_method = {method: zip(*(each[method] for each in found), strict=True) for method in first if found}
        return {method: Sample(*map(fmean, costs)) for method, costs in by_method.items()}

    def results(self, queue: Queue) -> Iterator[tuple[str, Result]]:
        """As Crew says. Raises UserError for what is wrong with the run itself, and if no worker is left."""
        while True:
            for member in self._members:
                if member.ready and member.waits is None and (chunk := queue.take(member.name)) is not None:
                    member.chunk = chunk
                    member.waits = member.actor.decode.options(num_returns="streaming").remote(chunk)
            if not any(member.chunk for member in self._members) and queue.empty:
                return
            self._look_for_room()
            for member in self._wait():
                if member.chunk is None:
                    self._advance(member, queue)
                elif (result := self._next(member, queue)) is not None:
                    self._deaths = 0 if isinstance(result, Response) else self._deaths
                    yield member.name, result

    def about(self) -> dict[str, Any]:
        """{"workers": by name host, device, cores, threads, and receipts at the start and the end}.

        Of a worker that is busy, because the run was stopped, there is no receipt of the end.
        """
        idle = [member for member in self._members if member.ready and member.waits is None]
        if self._about and self._began:
            asked = [member.actor.receipt.remote() for member in idle]
            done, _ = self._ray.wait(asked, num_returns=len(asked), timeout=RECEIPT_WITHIN) if asked else ([], [])
            for member, ref in zip(idle, asked, strict=True):
                with suppress(self._ray.exceptions.RayError):  # of a worker that died while it was idle
                    self._about[member.name]["end"] = self._ray.get(ref) if ref in done else None
        self._began = True
        return {"workers": self._about}

    def _spawn(self) -> Member:
        """A worker that is asked where it is."""
        options = {"num_cpus": self._workers.threads, "num_gpus": self._workers.gpus, "max_restarts": 0}
        actor = self._remote.options(**options, scheduling_strategy="SPREAD").remote()
        return Member(actor, actor.hello.remote(), time.monotonic())

    def _wait(self) -> list[Member]:
        """The workers that have something to say, or none within a second."""
        waiting = {member.waits: member for member in self._members if member.waits is not None}
        ready, _ = self._ray.wait(list(waiting), num_returns=len(waiting), timeout=0) if waiting else ([], [])
        if waiting and not ready:
            ready, _ = self._ray.wait(list(waiting), num_returns=1, timeout=1.0)
        return [waiting[ref] for ref in ready]

    def _advance(self, member: Member, queue: Queue | None = None) -> None:
        """A worker that is starting has answered: load, or be ready. queue: of a run that is going on."""
        try:
            said = self._ray.get(member.waits)
            self._go_on(member, said)
        except self._ray.exceptions.RayError as error:
            self._start_failed(member, error, queue)
        except UserError as error:  # no cores for it there, or it is not like the others
            if queue is None:
                raise
            self._replace(member, f"{error}", member.failures + 1)

    def _go_on(self, member: Member, said: Any) -> None:
        if not member.name:
            self._place(member, said)
            own = list(member.cores)
            arguments = (self._workers.asked, self._config, own, str(Path.cwd()), self._data, str(self._scratch))
            member.waits = member.actor.load.remote(*arguments)
            return
        description, items, receipt = said
        self.description = self.description or description
        check_alike(self.description, description, member.name, self._workers.devices)
        self.items = self.items or items
        member.waits, member.ready = None, True
        known = self._about.setdefault(member.name, {"start": receipt})
        known |= {
            "host": member.host,
            "device": self._config.device,
            "name": device_name(description),
            "cores": list(member.cores),
            "gpus": list(member.gpus),
            "threads": self._workers.threads,
            "end": None,
        }

    def _place(self, member: Member, said: dict[str, Any]) -> None:
        """Give a worker its name, and cores that no other one has. Raises UserError if its machine has too few."""
        member.host, member.machine, member.gpus = said["host"], said["machine"], tuple(said["gpus"])
        others = {core for each in self._members if each.machine == member.machine for core in each.cores}
        free = [core for core in said["cores"] if core not in others]
        if len(free) < self._workers.threads:
            raise UserError(
                f"{member.host} has {len(said['cores'])} cores, too few for its workers of {self._workers.threads} "
                "threads, each on cores of its own; give fewer --threads, or start Ray there with its own --num-cpus"
            )
        member.cores = tuple(free[: self._workers.threads])
        place = f"gpu{member.gpus[0]}" if self._workers.gpus and member.gpus else "cpu"
        number = member.cores[0] if member.cores else sum(bool(each.name) for each in self._members)
        member.name = f"{member.host}:{place}:{number}"

    def _next(self, member: Member, queue: Queue) -> Result | None:
        """The next result of a worker that decodes; None if it has finished its chunk, or died."""
        assert member.chunk is not None
        try:
            result: Result = self._ray.get(next(member.waits))
            return result
        except StopIteration:
            member.waits = member.chunk = None
        except self._ray.exceptions.RayError as error:
            if (wrong := _user_error(error)) is not None:
                raise wrong from error
            reason = _reason(error)
            queue.give_back(member.chunk, reason)
            self._deaths += 1
            self._replace(member, f"worker {member.name} died: {reason}")
            if self._deaths >= max(HOPELESS, STARTS * self._workers.count):
                raise UserError(
                    f"{self._deaths} workers died one after the other and decoded nothing, the last one so: {reason}; "
                    "what is finished is kept: put that right and go on with --resume"
                ) from error
        return None

    def _start_failed(self, member: Member, error: BaseException, queue: Queue | None) -> None:
        """Try again while a run is going on; before, what is wrong is the user's to put right. Raises UserError."""
        wrong = _user_error(error) or UserError(f"a worker could not start: {_reason(error)}")
        if queue is None:
            raise wrong from error
        self._replace(member, first_line(wrong), member.failures + 1)

    def _replace(self, member: Member, said: str, failures: int = 0) -> None:
        """Another worker in the place of one that is gone, unless that place failed too often."""
        self._ray.kill(member.actor)
        self._members.remove(member)
        again = failures < STARTS
        if again:
            self._members.append(self._spawn())
            self._members[-1].failures = failures
        print(f"{said}; {'another one is started' if again else 'its place is given up'}", file=sys.stderr, flush=True)

    def _look_for_room(self) -> None:
        """Raise UserError if workers wait too long for room: all of those that are to begin, or all that are left."""
        waiting = [member for member in self._members if not member.name]
        if self._began and len(waiting) < len(self._members):
            return
        if not self._members or any(time.monotonic() - member.since > PLACED_WITHIN for member in waiting):
            raise UserError(
                f"{len(waiting)} of {self._workers.count} workers found no room in the cluster within "
                f"{PLACED_WITHIN:.0f} s: its nodes are busy, or gone; free them"
                + (" and go on with --resume" if self._began else ", or give fewer --workers")
            )


def _user_error(error: BaseException) -> UserError | None:
    """What a worker found wrong with the run itself, as the run without workers would say it."""
    cause = getattr(error, "cause", None)
    return UserError(str(cause)) if isinstance(cause, UserError | ValueError) else None


def _reason(error: BaseException) -> str:
    """How a worker died, in a few words."""
    from ray import exceptions

    if isinstance(error, exceptions.OutOfMemoryError):
        return "Ray ended it, for its node was out of memory"
    if isinstance(error, exceptions.RayTaskError):
        cause = error.cause
        return f"{type(cause).__name__}: {first_line(cause)}" if cause is not None else first_line(error)
    if "node has died" in str(error) or isinstance(error, exceptions.NodeDiedError):
        return "its node is gone"
    return "its process ended; it was killed, was out of memory, or crashed"
