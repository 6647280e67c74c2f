"""Who decodes a run: a worker in this process, or workers of a cluster. Both give their results to who records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from harness.errors import UserError
from harness.methods.asked import given_functions
from harness.records.schema import PromptRecord
from harness.runs.actor import cores
from harness.runs.chunks import Queue
from harness.runs.results import Result, Sample

if TYPE_CHECKING:
    import argparse

    from harness.runs.worker import Worker


@dataclass(frozen=True)
class Workers:
    """The workers that were asked for.

    asked: the command line, which every worker resolves for itself. count: how many. address: of a Ray cluster; None
    for one on this machine. gpus: of each worker. threads: of each
    worker, on cores of its own; 0 for none. devices: unlike ones that may share the run.
    """

    asked: argparse.Namespace
    count: int
    address: str | None
    gpus: float
    threads: int
    devices: frozenset[str] = frozenset()


def workers_of(asked: argparse.Namespace) -> Workers | None:
    """The workers that a command line asks for; None without --workers. Sets its `threads`, of every worker.

    Raises UserError for options that do not fit together.
    """
    if asked.workers is None:
        for name in ("ray_address", "gpus_per_worker", "allow_devices"):
            if getattr(asked, name) is not None:
                raise UserError(f"--{name.replace('_', '-')} is for runs with workers; add --workers N")
        return None
    if asked.workers < 1:
        raise UserError(f"--workers {asked.workers} must be at least 1")
    if functions := given_functions(asked.methods):
        raise UserError(
            f"workers are processes of their own, which do not know the function {', '.join(functions)}; save it in "
            f'a file and name that: methods="FILE.py:{functions[0]}"'
        )
    if asked.threads is not None and asked.threads < 1:
        raise UserError(f"--threads {asked.threads} must be at least 1")
    if asked.device not in ("cpu", "cuda"):
        raise UserError(f"--workers takes --device cpu or cuda, for each worker is given its own; not {asked.device}")
    if asked.threads is None:
        asked.threads = 1 if asked.ray_address else max(1, len(cores()) // asked.workers)
    devices = frozenset(name.strip() for name in (asked.allow_devices or "").split(";") if name.strip())
    return Workers(asked, asked.workers, asked.ray_address, _gpus(asked), asked.threads, devices)


def _gpus(asked: argparse.Namespace) -> float:
    """GPUs of each worker. Raises UserError for a number that makes no sense."""
    gpus: float | None = asked.gpus_per_worker
    if asked.device == "cpu":
        if gpus:
            raise UserError(f"--gpus-per-worker {gpus:g} is for --device cuda; the run decodes on the CPU")
        return 0.0
    gpus = 1.0 if gpus is None else gpus
    if not 0 < gpus <= 1:
        raise UserError(f"--gpus-per-worker {gpus:g} must be above 0 and at most 1: a worker's models are on one GPU")
    if gpus < 1 and not asked.untimed:
        raise UserError(
            f"--gpus-per-worker {gpus:g} lets workers share a GPU, so that their seconds say nothing of a decoder; add "
            "--untimed"
        )
    return gpus


class Crew(Protocol):
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

    def warm_up(self, suite: str, first: dict[str, int]) -> dict[str, Sample]:
        """Decode an item of a suite by each method on every worker, without recording it; what that cost, by method.

        Empty where the item ended every worker.
        """

    def results(self, queue: Queue) -> Iterator[tuple[str, Result]]:
        """Results as they are finished, each with the name of its worker, "" of the one in this process."""

    def about(self) -> dict[str, Any]:
        """What a session's entry in run.json says of the workers."""


class Alone:
    """The worker in this process."""

    size = 1

    def __init__(self, worker: Worker) -> None:
        self._worker, self.description, self.items = worker, worker.description, worker.items
        self.prompts, self.warm_up = worker.prompts, worker.warm_up

    def results(self, queue: Queue) -> Iterator[tuple[str, Result]]:
        """As Crew says."""
        while (chunk := queue.take()) is not None:
            for result in self._worker.decode(chunk):
                yield "", result

    def about(self) -> dict[str, Any]:
        """As Crew says."""
        return {}
