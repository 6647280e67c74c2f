"""Who decodes a run, and what is left for them: chunks of items, each of which passes all methods
on one worker.

A chunk that a worker did not finish, because it died, comes back. The response that was in flight
is handed out again by itself, after all others, so that one that ends every worker which decodes it
holds nothing else up.
"""

from __future__ import annotations

import math
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import TYPE_CHECKING, Any, Protocol

from harness.errors import UserError
from harness.records.schema import Key, PromptRecord, RunConfig
from harness.runs.options import RunOptions

if TYPE_CHECKING:
    # torch: not before a worker of a cluster has answered
    from harness.runs.responses import Result


@dataclass(frozen=True)
class Workers:
    """The workers that a run has.

    options: of the run, which every worker resolves for itself; their threads are those of a
    worker. count: how many. address: of a Ray cluster; None for one on this machine. gpus: of each
    worker. threads: of each worker, on cores of its own.
    """

    options: RunOptions
    count: int
    address: str | None
    gpus: float
    threads: int


def workers_of(options: RunOptions) -> Workers | None:
    """The workers of a run; None without --workers. Raises UserError for options that do not fit
    together."""
    if options.workers is None:
        for name in ("ray_address", "gpus_per_worker"):
            if getattr(options, name) is not None:
                flag = name.replace("_", "-")
                raise UserError(f"--{flag} is for runs with workers; add --workers N")
        return None
    if options.device_map is not None:
        raise UserError(
            "--device-map spreads a model over the GPUs of a machine, and each of the --workers has"
            " one: leave one out"
        )
    gpus = _gpus_of_worker(options)
    threads = options.threads or (
        1 if options.ray_address else max(1, len(cores()) // options.workers)
    )
    return Workers(
        replace(options, threads=threads), options.workers, options.ray_address, gpus, threads
    )


def _gpus_of_worker(options: RunOptions) -> float:
    """The GPUs of each worker, or the part of one. Raises UserError for a device that workers do
    not take."""
    gpus = options.gpus_per_worker
    if options.device == "cpu":
        if gpus:
            raise UserError(
                f"--gpus-per-worker {gpus:g} is for --device cuda; the run decodes on the CPU"
            )
        return 0.0
    if options.device != "cuda":
        raise UserError(
            "--workers takes --device cpu or cuda, for each worker is given its own; not"
            f" {options.device}"
        )
    if gpus is None:
        return 1.0
    if not 0 < gpus <= 1:
        raise UserError(
            f"--gpus-per-worker {gpus:g} must be above 0 and at most 1: a worker's models are on"
            " one GPU"
        )
    if gpus < 1 and not options.untimed:
        raise UserError(
            f"--gpus-per-worker {gpus:g} lets workers share a GPU, so that their seconds say"
            " nothing of a decoder; add --untimed"
        )
    return gpus


def cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


class WorkerPool(Protocol):
    """What decodes a run. description: of what it was made with, for run.json. items: their numbers
    by suite."""

    @property
    def config(self) -> RunConfig:
        """The run's configuration, with what was chosen when it was loaded."""

    @property
    def description(self) -> dict[str, Any]: ...

    @property
    def items(self) -> dict[str, Sequence[int]]: ...

    @property
    def size(self) -> int:
        """How many workers decode now."""

    @property
    def problems(self) -> dict[str, Any]:
        """The loaded problems by suite, where this process has them."""

    def prompts(self) -> list[PromptRecord]:
        """The prompts of all items."""

    def warm_up(self, suite: str, first: dict[str, int]) -> dict[str, float]:
        """Decode an item of a suite by each method on every worker, without recording it; its
        seconds, by method.

        Empty where the item ended every worker.
        """

    def results(self, queue: Queue) -> Iterator[tuple[str, Result]]:
        """Results as they are finished, each with the name of its worker, "" of the one in this
        process."""

    def about(self) -> dict[str, Any]:
        """What a session's entry in run.json says of the workers."""


Response = tuple[str, int]  # a method and an item of a chunk's suite
DEATHS = 3  # of workers with an item in flight, after which its responses are left out
# chunks that each worker should still get when a chunk is handed out: the last ones are small
LAST = 2


@dataclass(frozen=True)
class Chunk:
    """Responses of one suite for one worker: by method its items, in the order in which they are
    decoded."""

    suite: str
    pending: dict[str, list[int]]

    @classmethod
    def of(cls, suite: str, responses: Iterable[Response]) -> Chunk:
        """A chunk of responses, those of a method together."""
        pending: dict[str, list[int]] = {}
        for method, item in responses:
            pending.setdefault(method, []).append(item)
        return cls(suite, pending)

    @property
    def responses(self) -> list[Response]:
        """Method and item of every response, in order."""
        return [(method, item) for method, items in self.pending.items() for item in items]


class Queue:
    """What a run still has to decode.

    items: their numbers by suite. methods: their keys, in the order of the run. done: whether the
    response of (method, suite, item) is recorded. size: most items of a chunk. workers: how many
    share the work; with several, the last chunks are smaller. at_once: how many responses of a
    chunk a worker has in flight.
    """

    def __init__(
        self,
        items: Mapping[str, Sequence[int]],
        methods: list[str],
        done: Callable[[str, str, int], bool],
        size: int,
        workers: int = 1,
        at_once: int = 1,
    ) -> None:
        self._methods = methods
        self._done = done
        self._size = size
        self._workers = workers
        self._at_once = at_once
        self._fresh = deque(
            (suite, item)
            for suite, numbers in items.items()
            for item in numbers
            if not all(done(method, suite, item) for method in methods)
        )
        self._returned: deque[Chunk] = deque()
        self._suspects: deque[Chunk] = deque()
        self._taken: Counter[tuple[str, str]] = Counter()
        self._deaths: Counter[tuple[str, int]] = Counter()
        self.left_out: dict[Key, str] = {}  # and why

    def take(self, worker: str = "") -> Chunk | None:
        """The next chunk for a worker; None while there is none.

        The methods' order alternates from chunk to chunk of a suite on each worker (ABBA).
        """
        if self._returned:
            return self._returned.popleft()
        if not self._fresh:
            return self._suspects.popleft() if self._suspects else None
        suite, items = self._fresh_items()
        backwards = self._taken[worker, suite] % 2
        self._taken[worker, suite] += 1
        ordered = self._methods[::-1] if backwards else self._methods
        return Chunk.of(suite, self._unrecorded(suite, product(ordered, items)))

    def _unrecorded(self, suite: str, responses: Iterable[Response]) -> list[Response]:
        return [(method, item) for method, item in responses if not self._done(method, suite, item)]

    def _fresh_items(self) -> tuple[str, list[int]]:
        """The items of the next chunk, which are of one suite."""
        size = self._size
        if self._workers > 1:
            size = min(size, math.ceil(len(self._fresh) / (LAST * self._workers)))
        suite = self._fresh[0][0]
        items = [item for of, item in islice(self._fresh, size) if of == suite]
        for _ in items:
            self._fresh.popleft()
        return suite, items

    @property
    def empty(self) -> bool:
        """Whether nothing is left to hand out; what was handed out may still come back."""
        return not (self._returned or self._fresh or self._suspects)

    def give_back(self, chunk: Chunk, reason: str) -> None:
        """Take back what a dead worker did not finish of a chunk.

        reason: how it died. The first responses that are not recorded were in flight; if workers
        died DEATHS times with the item of one, it is left out.
        """
        rest = self._unrecorded(chunk.suite, chunk.responses)
        in_flight = rest[: self._at_once]
        others = rest[self._at_once :]
        self._deaths.update({(chunk.suite, item) for _, item in in_flight})
        for method, item in in_flight:
            if self._deaths[chunk.suite, item] >= DEATHS:
                self.left_out[method, chunk.suite, item] = (
                    f"{DEATHS} workers died with its item, the last so: {reason}"
                )
            else:
                self._suspects.append(Chunk(chunk.suite, {method: [item]}))
        if others:
            self._returned.append(Chunk.of(chunk.suite, others))
