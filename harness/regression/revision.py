"""Another revision of the repository as a folder, gone when it is no longer needed, also where the gate is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from harness.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def checkout(rev: str) -> Iterator[Path]:
    """The files of a revision in a temporary folder. Raises UserError if git knows none of that name.

    They come through an index of their own, not as a worktree: the clone keeps no trace of it, however this ends.
    """
    with tempfile.TemporaryDirectory(prefix="revision-") as scratch:
        tree, index = Path(scratch) / "tree", Path(scratch) / "index"
        commit = _git(rev, index, "rev-parse", "--verify", "--end-of-options", f"{rev}^{{commit}}").strip()
        _git(rev, index, "read-tree", commit)
        _git(rev, index, "checkout-index", "--all", f"--prefix={tree}/")
        yield tree


def _git(rev: str, index: Path, *arguments: str) -> str:
    environment = os.environ | {"GIT_INDEX_FILE": str(index)}
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["git failed"])[-1]
        raise UserError(f"--against-rev {rev}: {reason}; the revision must be in this clone's history")
    return done.stdout


@contextmanager
def cleaned_up() -> Iterator[None]:
    """Inside, a signal that ends a process ends it by SystemExit, so that its folders and processes go first.

    A signal that was ignored before, as under nohup, still is.
    """
    before = {each: signal.getsignal(each) for each in ENDING}
    heeded = [each for each in ENDING if before[each] is not signal.SIG_IGN]

    def end(number: int, frame: FrameType | None) -> None:
        for each in heeded:  # a second one must not interrupt the cleaning
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for each in heeded:
        signal.signal(each, end)
    try:
        yield
    finally:
        for each in heeded:
            signal.signal(each, before[each])
