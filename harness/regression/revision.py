"""Another revision of the repository as a folder, and processes that decode with its code.

Folder and processes last as long as their contexts. Such a process runs this file too, with that
revision's code on the import path: each line of its input is a request in JSON, each line of its
output the answer or {"error": text}. To answer, it uses only the public API of model_wrappers, so
that older revisions can run it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from harness.errors import UserError
from model_wrappers import decode, load_backbone

if TYPE_CHECKING:
    from harness.records.schema import RunConfig
    from model_wrappers.opencompass_model import DiffusionModel

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def checkout(rev: str) -> Iterator[Path]:
    """The files of a revision in a temporary folder, removed at the end.

    They come from an archive and are no worktree, so that the clone keeps no trace. Inside, SIGTERM
    raises SystemExit, so that the folder is removed then as well.

    Raises:
        UserError: git knows no such revision.
    """
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="revision-") as scratch:
        tree = Path(scratch) / "tree"
        archive = Path(scratch) / "tree.tar"
        try:
            commit = _git("rev-parse", "--verify", "--end-of-options", f"{rev}^{{commit}}")
            _git("archive", f"--output={archive}", commit)
            shutil.unpack_archive(archive, tree, filter="data")
            yield tree
        finally:
            signal.signal(signal.SIGTERM, before)


def _git(*arguments: str) -> str:
    """What git prints in this repository, stripped. Raises UserError with the reason if it
    fails."""
    command = ["git", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["git failed"])[-1]
        raise UserError(f"git {' '.join(arguments)}: {reason}")
    return done.stdout.strip()


class Side:
    """A process that decodes with the code of one of the two trees; a context manager that ends it.

    Args:
        tree: the folder of the code, of this revision or another.
        threads: of torch in the process.
    """

    def __init__(self, tree: Path, threads: int) -> None:
        # Threads that wait must not spin: they would take the other side's cores.
        environment = os.environ | {
            "PYTHONPATH": str(tree),
            "OMP_WAIT_POLICY": "PASSIVE",
            "TQDM_DISABLE": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(threads)],
            cwd=tree,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: Any) -> None:
        self._process.kill()
        self._process.wait()

    def decode(self, request: dict[str, Any]) -> dict[str, Any]:
        """Let the process decode a response.

        Args:
            request: as `request_of` makes it.

        Returns:
            What `answer` returns, or {"error": text} if it raised an exception.

        Raises:
            UserError: the process has ended.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise UserError("a process that was to decode has ended; its message stands above")
        return json.loads(line)


def request_of(config: RunConfig, model: DiffusionModel, prompt: list[int]) -> dict[str, Any]:
    """The request for `answer`: decode a prompt (token ids) as `model` does in a run."""
    options = dict(model.options)
    draft = options.pop("draft", None)
    # The folder or hub id of this revision's weights, so that both revisions load the same ones.
    return {
        "model": str(model.backbone.model.config.name_or_path),
        "draft": None if draft is None else str(draft.model.config.name_or_path),
        "prompt": prompt,
        "method": model.decoder.name,
        "options": options,
        "gen_length": model.gen_length,
        "block_length": model.block_length,
        "temperature": model.temperature,
        "seed": config.seed or 0,
        **{name: getattr(config, name) for name in ("device", "dtype", "graphs")},
    }


@lru_cache
def backbone_of(name: str, device: str, dtype: str, graphs: bool) -> Any:
    """A backbone, loaded once."""
    # Passed only if it is wanted, because older revisions do not know cuda_graphs.
    options: dict[str, Any] = {"cuda_graphs": True} if graphs else {}
    return load_backbone(name, device=device, dtype=dtype, **options)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Decode one response.

    Args:
        request: as `request_of` makes it.

    Returns:
        seconds: of decoding; forwards: of the model; tokens: SHA-256 of the response's ids.
    """
    where = (request["device"], request["dtype"], request["graphs"])
    backbone = backbone_of(request["model"], *where)
    options = dict(request["options"])
    if request["draft"] is not None:
        options["draft"] = backbone_of(request["draft"], *where)
    out = decode(
        backbone,
        torch.tensor(request["prompt"]),
        method=request["method"],
        gen_length=request["gen_length"],
        block_length=request["block_length"],
        temperature=request["temperature"],
        seed=request["seed"],
        **options,
    )
    return {
        "seconds": out.trace.seconds,
        "forwards": out.trace.forwards,
        "tokens": hashlib.sha256(out.tokens.numpy().tobytes()).hexdigest(),
    }


def main() -> None:
    """Answer until the input ends."""
    # Answers go to the original stdout; from here on, what libraries print there goes to stderr.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(int(sys.argv[1]))
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except Exception as error:
            # An older revision may not know an option; the other side decides what follows.
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=channel, flush=True)


if __name__ == "__main__":
    main()
