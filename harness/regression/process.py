"""A process that decodes with the code of one tree, this one or another revision's, and what it is asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UserError
from harness.records.schema import RunConfig
from model_wrappers.decoders import name_of

if TYPE_CHECKING:
    from model_wrappers.opencompass_model import DiffusionModel


class Worker:
    """A process that decodes with the code of one tree; a context manager."""

    def __init__(self, tree: Path, threads: int) -> None:
        # Threads that wait must not spin: they would take the other side's cores.
        environment = os.environ | {"PYTHONPATH": str(tree), "OMP_WAIT_POLICY": "PASSIVE"}
        command = [sys.executable, str(Path(__file__).with_name("worker.py")), str(threads)]
        self._process = subprocess.Popen(
            command, cwd=tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: Any) -> None:
        self._process.kill()
        self._process.wait()

    def decode(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request of worker.py's. Raises UserError if the process died."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        line = self._process.stdout.readline()
        if not line:
            raise UserError("a process that was to decode has ended; its message stands above")
        return json.loads(line)


def request_of(config: RunConfig, model: DiffusionModel, prompt: list[int]) -> dict[str, Any]:
    """What worker.py is asked for: the response of a model of this run to a prompt's ids."""
    options = dict(model.options)
    draft = options.pop("draft", None)
    return {
        "model": _source(model.backbone),
        "draft": None if draft is None else _source(draft),
        "prompt": prompt,
        "method": name_of(model.method),
        "options": options,
        "gen_length": model.gen_length,
        "block_length": model.block_length,
        "temperature": model.temperature,
        **{name: getattr(config, name) for name in ("seed", "device", "dtype", "compile", "graphs")},
    }


def _source(backbone: Any) -> str:
    """The folder, or hub id, of a backbone's weights: the same for both revisions, whatever they ship."""
    return str(backbone.model.config.name_or_path)
