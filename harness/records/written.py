"""Folders that results go to: nothing in them is replaced or deleted but what a command of this project wrote."""

from collections.abc import Callable, Collection
from pathlib import Path

from harness.errors import UserError, explained
from harness.records.store import write_atomically

WRITTEN = ".fef-dllm"  # names of what was written, a line each, in a folder of the user's choice
ELSEWHERE = "choose another folder with --out"


def make_room(
    folder: Path, names: Collection[str], ours: Callable[[Path], bool] = lambda path: False, kept: bool = False
) -> None:
    """Make a folder ready for files of these names. Files of earlier commands that have other names go, unless `kept`.

    ours: which files of a run's own folder are, whoever wrote them; elsewhere WRITTEN has their names. Raises
    UserError, before anything is changed, where one of these names is somebody else's file, and where writing fails.
    """
    with explained(f"cannot write to {folder}", OSError, instead=ELSEWHERE):
        folder.mkdir(parents=True, exist_ok=True)
        note = folder / WRITTEN
        written = set(note.read_text(encoding="utf-8", errors="replace").splitlines()) if note.is_file() else set()
        there = [path for path in folder.iterdir() if path.name != WRITTEN]
        own = {path.name for path in there if path.name in written or ours(path)}
        if foreign := sorted({path.name for path in there} & {*names} - own):
            raise UserError(f"{folder} has a file {foreign[0]} that no command of this project wrote; {ELSEWHERE}")
        gone = set() if kept else own - {*names}
        for name in gone:
            (folder / name).unlink()
        if not all(ours(folder / name) for name in names):
            write_atomically(note, "".join(f"{name}\n" for name in sorted((written | {*names}) - gone)))
