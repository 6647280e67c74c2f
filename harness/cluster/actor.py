"""A worker in a process of its own, which may be on another machine: what Ray's actor runs.

Nothing is imported here that takes seconds, so that a new process answers at once and loads afterwards.
"""

from __future__ import annotations

import logging
import os
import platform
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cluster.pickling import unpickled
from harness.errors import UserError
from harness.records.schema import RunConfig
from harness.runs.chunks import Chunk
from harness.runs.pool import cores

if TYPE_CHECKING:
    from harness.runs.responses import Result
    from harness.runs.worker import Worker


class Actor:
    """Says where it is, loads a run, decodes chunks of it."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def hello(self) -> dict[str, Any]:
        """{host, machine, cores, gpus}: its name, one text for each machine, cores it may use, GPUs Ray gave it."""
        boot = Path("/proc/sys/kernel/random/boot_id")
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return {
            "host": platform.node(),
            "machine": f"{platform.node()} {boot.read_text().strip() if boot.exists() else ''}",
            "cores": cores(),
            "gpus": [part for part in visible.split(",") if part],
        }

    def load(
        self, options: bytes, config: RunConfig, own: list[int], folder: str, kept: str
    ) -> tuple[dict[str, Any], dict[str, int], dict[str, Any]]:
        """Load the models and problems of a run; what it was made with, items by suite, and a receipt of the machine.

        options: the run's, of `harness.cluster.pickling`; they are resolved here. config: what they must come to. own:
        the cores of this worker alone. folder: in which the command was given, for relative paths. kept: folder for
        what is not kept, where it is there.

        Raises UserError or ValueError if the folder, the files or the models are not the same here.
        """
        if own and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, own)  # before torch starts its threads, which inherit it
        try:
            os.chdir(folder)
        except OSError as error:
            raise UserError(
                f"{folder} cannot be entered ({error.strerror}); workers need the files of a run at the same paths"
            ) from error
        logging.disable(logging.WARNING)  # as the command does
        from harness.runs.loading import worker_for
        from harness.runs.resolve import differences, resolve

        run = resolve(unpickled(options))
        changed = differences(config.to_json(), run.config.to_json())
        if changed:
            raise UserError(f"the run comes to something else here: {'; '.join(changed)}; give every machine the same")
        scratch = Path(tempfile.mkdtemp(prefix="worker-", dir=kept if Path(kept).is_dir() else None))
        self._worker = worker_for(run, scratch)
        return self._worker.description, self._worker.items, self._worker.receipt()

    @property
    def worker(self) -> Worker:
        """The worker, which is loaded."""
        assert self._worker is not None, "load comes first"
        return self._worker

    def ask(self, name: str, *given: Any) -> Any:
        """What a method of the worker returns: prompts, receipt or warm_up."""
        return getattr(self.worker, name)(*given)

    def decode(self, chunk: Chunk) -> Iterator[Result]:
        """As Worker says."""
        yield from self.worker.decode(chunk)
