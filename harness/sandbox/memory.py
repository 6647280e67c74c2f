"""The memory and files that a process and its descendants hold, read from outside: no limit covers several processes.

Control groups would have the kernel enforce it; moving each program into one took up to 20 ms, half of its time.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
OWN_CHILDREN = Path("/proc/thread-self/children")  # missing where the kernel does not list them


def can_watch() -> bool:
    """Whether this machine says what a process and its descendants hold."""
    return OWN_CHILDREN.exists()


def held_bytes(process: int) -> int:
    """What a process and its descendants hold in memory (resident, pages that several share counted for each)."""
    held = 0
    for folder in _processes(process):
        with suppress(OSError):  # it has ended
            held += int((folder / "statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES
    return held


def held_files(process: int, folders: Iterable[str]) -> int:
    """The most files in one of these folders, as the descendants see them that have mounts of their own; 0 without.

    The kernel's memory for files, empty ones too, counts as no process's.
    """
    here = Path("/proc/self/ns/mnt").readlink()
    for own in _processes(process):
        with suppress(OSError):  # it has ended, or may not be looked at
            if (own / "ns" / "mnt").readlink() != here:
                mounts = [os.statvfs(f"{own}/root{folder}") for folder in folders]
                return max(mount.f_files - mount.f_ffree for mount in mounts)
    return 0


def _processes(process: int) -> Iterator[Path]:
    """The folder in /proc of a process, and of all that it started."""
    left = [str(process)]
    while left:
        folder = Path("/proc", left.pop())
        yield folder
        with suppress(OSError):  # it has ended
            for task in (folder / "task").iterdir():
                left += (task / "children").read_text(encoding="ascii").split()
