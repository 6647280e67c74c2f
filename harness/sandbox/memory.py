"""The memory that a process and all that it started hold, read from outside: no limit of a process covers several.

Control groups would have the kernel enforce it; moving each program into one took up to 20 ms, half of its time.
"""

from __future__ import annotations

import os
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
OWN_CHILDREN = Path("/proc/thread-self/children")  # missing where the kernel does not list them


def can_watch() -> bool:
    """Whether this machine says what a process and its descendants hold."""
    return OWN_CHILDREN.exists()


def held_bytes(process: int) -> int:
    """What a process and its descendants hold in memory (resident, pages that several share counted for each)."""
    held, left = 0, [str(process)]
    while left:
        folder = Path("/proc", left.pop())
        try:
            held += int((folder / "statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES
            for task in (folder / "task").iterdir():
                left += (task / "children").read_text(encoding="ascii").split()
        except OSError:  # it has ended
            continue
    return held
