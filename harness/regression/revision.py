"""Another revision of the repository as a folder, gone when it is no longer needed, also where the gate is ended."""

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
        tree, index = Path(scratch) / "tree", {"GIT_INDEX_FILE": str(Path(scratch) / "index")}
        try:
            commit = _git("rev-parse", "--verify", "--end-of-options", f"{rev}^{{commit}}")
            _git("read-tree", commit, **index)
            _git("checkout-index", "--all", f"--prefix={tree}/", **index)
        except UserError as error:
            raise UserError(f"--against-rev {rev}: {error}; the revision must be in this clone's history") from error
        yield tree


def revision_of(folder: Path) -> str:
    """The commit that a folder's files came with: the last that changed any.

    Raises UserError if they were changed since, or git does not know it: the folder is not in this repository, or the
    history of a shallow clone does not reach back as far.
    """
    path = str(folder.resolve())
    if _git("status", "--porcelain", "--", path):
        raise UserError(f"{folder} has changes that are not committed")
    commit = _git("rev-list", "-1", "HEAD", "--", path)
    ends = Path(ROOT, _git("rev-parse", "--git-path", "shallow"))  # commits whose parents a shallow clone lacks
    if not commit or (ends.exists() and commit in ends.read_text().split()):
        raise UserError(f"this clone's history does not have the commit that {folder} came with")
    return commit


def _git(*arguments: str, **environment: str) -> str:
    """What git prints in this repository, stripped. Raises UserError with the reason if it fails."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise UserError((done.stderr.strip().splitlines() or ["git failed"])[-1])
    return done.stdout.strip()


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
