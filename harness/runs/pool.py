"""Who decodes a run: a worker in this process, or workers of a cluster. Both give their results to who records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from harness.errors import UserError
from harness.records.schema import PromptRecord
from harness.runs.chunks import Queue
from harness.runs.options import RunOptions

if TYPE_CHECKING:
    from harness.runs.responses import Result  # torch: not before a worker of a cluster has answered


@dataclass(frozen=True)
class Workers:
    """The workers that a run has.

    options: of the run, which every worker resolves for itself; their threads are those of a worker. count: how many.
    address: of a Ray cluster; None for one on this machine. gpus: of each worker. threads: of each worker, on cores of
    its own. devices: unlike ones that may share the run.
    """

    options: RunOptions
    count: int
    address: str | None
    gpus: float
    threads: int
    devices: frozenset[str] = frozenset()


def workers_of(options: RunOptions) -> Workers | None:
    """The workers of a run; None without --workers. Raises UserError for options that do not fit together."""
    if options.workers is None:
        for name in ("ray_address", "gpus_per_worker", "allow_devices"):
            if getattr(options, name) is not None:
                raise UserError(f"--{name.replace('_', '-')} is for runs with workers; add --workers N")
        return None
    if options.device not in ("cpu", "cuda"):
        raise UserError(f"--workers takes --device cpu or cuda, for each worker is given its own; not {options.device}")
    threads = options.threads or (1 if options.ray_address else max(1, len(cores()) // options.workers))
    devices = frozenset(name.strip() for name in (options.allow_devices or "").split(";") if name.strip())
    own = replace(options, threads=threads)
    return Workers(own, options.workers, options.ray_address, _gpus(options), threads, devices)


def cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _gpus(options: RunOptions) -> float:
    """GPUs of each worker. Raises UserError for a number that makes no sense."""
    gpus: float | None = options.gpus_per_worker
    if options.device == "cpu":
        if gpus:
            raise UserError(f"--gpus-per-worker {gpus:g} is for --device cuda; the run decodes on the CPU")
        return 0.0
    gpus = 1.0 if gpus is None else gpus
    if not 0 < gpus <= 1:
        raise UserError(f"--gpus-per-worker {gpus:g} must be above 0 and at most 1: a worker's models are on one GPU")
    if gpus < 1 and not options.untimed:
        raise UserError(
            f"--gpus-per-worker {gpus:g} lets workers share a GPU, so that their seconds say nothing of a decoder; add "
            "--untimed"
        )
    return gpus


class WorkerPool(Protocol):
    """What decodes a run. description: of what it was made with, for run.json. items: how many each suite has."""

    @property
    def description(self) -> dict[str, Any]: ...

    @property
    def items(self) -> dict[str, int]: ...

    @property
    def size(self) -> int:
        """How many workers decode now."""

    def prompts(self) -> list[PromptRecord]:
        """The prompts of all items."""

    def warm_up(self, suite: str, first: dict[str, int]) -> dict[str, float]:
        """Decode an item of a suite by each method on every worker, without recording it; its seconds, by method.

        Empty where the item ended every worker.
        """

    def results(self, queue: Queue) -> Iterator[tuple[str, Result]]:
        """Results as they are finished, each with the name of its worker, "" of the one in this process."""

    def about(self) -> dict[str, Any]:
        """What a session's entry in run.json says of the workers."""
