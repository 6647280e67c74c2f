"""The workers of a run, and the queue of chunks that they take. A chunk is a few items, each of
which passes all methods on one worker.

When a worker dies, what it left of its chunk is queued again. The response that was in flight is
suspected of killing workers: it is retried alone and last, so that it does not hold up the others.
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

    Attributes:
        options: of the run, which every worker resolves for itself; with the threads of one worker.
        count: the number of workers.
        address: of a Ray cluster; None for one on this machine.
        gpus: GPUs of each worker, or the part of one.
        threads: of each worker, on cores that no other worker uses.
    """

    options: RunOptions
    count: int
    address: str | None
    gpus: float
    threads: int


def workers_of(options: RunOptions) -> Workers | None:
    """The workers of a run; None without --workers.

    Raises:
        UserError: options that do not fit together.
    """
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
    # With an address the workers may be on other machines, whose cores are not known here.
    threads = options.threads or (
        1 if options.ray_address else max(1, len(cores()) // options.workers)
    )
    return Workers(
        replace(options, threads=threads), options.workers, options.ray_address, gpus, threads
    )


def _gpus_of_worker(options: RunOptions) -> float:
    """The GPUs of each worker, or the part of one. Raises UserError for a device that workers
    cannot have."""
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
    """The numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        # Linux. Slurm and containers give a process fewer cores than the machine has.
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


class WorkerPool(Protocol):
    """What decodes a run: a Worker in this process, or the workers of a cluster.

    Attributes:
        description: what the run is made with, for run.json.
        items: the numbers of the items that are decoded, by suite.
    """

    @property
    def config(self) -> RunConfig:
        """The run's configuration, with the threads that were chosen while loading."""

    @property
    def description(self) -> dict[str, Any]: ...

    @property
    def items(self) -> dict[str, Sequence[int]]: ...

    @property
    def size(self) -> int:
        """The number of workers that decode now."""

    @property
    def problems(self) -> dict[str, Any]:
        """The loaded problems by suite, where this process has them."""

    def prompts(self) -> list[PromptRecord]:
        """The prompts of all items."""

    def warm_up(self, suite: str, first: dict[str, int]) -> dict[str, float]:
        """Decode an item of a suite by each method on every worker, without recording it.

        Args:
            suite: the suite's name.
            first: the item by method.

        Returns:
            Seconds by method; empty if the item killed every worker.
        """

    def results(self, queue: Queue) -> Iterator[tuple[str, Result]]:
        """Results as they are finished, each with the name of its worker: "" in this process."""

    def about(self) -> dict[str, Any]:
        """What a session's entry in run.json says of the workers."""


# A method, and an item of the chunk's suite.
Response = tuple[str, int]
# Deaths of workers with an item in flight, after which the item's responses are left out.
DEATHS = 3
# Chunks that each worker should still get when a chunk is handed out. So the last ones are small,
# and no worker decodes alone for long at the end.
LAST = 2


@dataclass(frozen=True)
class Chunk:
    """Responses of one suite for one worker.

    Attributes:
        suite: the suite's name.
        pending: items by method, both in the order in which they are decoded.
    """

    suite: str
    pending: dict[str, list[int]]

    @classmethod
    def of(cls, suite: str, responses: Iterable[Response]) -> Chunk:
        """A chunk of responses, grouped by method."""
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

    Args:
        items: numbers of items by suite.
        methods: keys of the methods, in the order of the run.
        done: whether the response of (method, suite, item) is recorded.
        size: the most items of a chunk.
        workers: the number of workers; with several, the last chunks are smaller.
        at_once: the number of responses of a chunk that a worker has in flight.

    Attributes:
        left_out: why a response was given up, by (method, suite, item).
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
        self.left_out: dict[Key, str] = {}

    def take(self, worker: str = "") -> Chunk | None:
        """The next chunk for a worker; None while there is none.

        The methods' order alternates from chunk to chunk of a suite on each worker (ABBA).
        """
        if self._returned:
            return self._returned.popleft()
        if not self._fresh:
            return self._suspects.popleft() if self._suspects else None
        suite, items = self._fresh_items()
        # Drift of the machine, such as heat, then hits the first and the last method alike.
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
        # Suites follow each other in the queue, so that these items are at its front.
        items = [item for other, item in islice(self._fresh, size) if other == suite]
        for _ in items:
            self._fresh.popleft()
        return suite, items

    @property
    def empty(self) -> bool:
        """Whether nothing is left to hand out. A chunk that a worker has may still come back."""
        return not (self._returned or self._fresh or self._suspects)

    def give_back(self, chunk: Chunk, reason: str) -> None:
        """Queue again what a dead worker did not finish of a chunk.

        A response is left out once DEATHS workers have died with its item in flight.

        Args:
            chunk: what the worker had taken.
            reason: how it died.
        """
        rest = self._unrecorded(chunk.suite, chunk.responses)
        # A worker decodes in order, and finished responses are recorded: the first ones left were
        # in flight.
        in_flight = rest[: self._at_once]
        others = rest[self._at_once :]
        # A set: an item that was in flight by several methods has seen one death.
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
