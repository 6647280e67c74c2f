"""How many programs had an object of a class of their own compared by a test: counted where programs are judged."""

from __future__ import annotations

import threading

_lock = threading.Lock()
_programs = 0


def count_program() -> None:
    """One more; safe to call from many threads."""
    global _programs
    with _lock:
        _programs += 1


def taken() -> int:
    """How many since the last call."""
    global _programs
    with _lock:
        found, _programs = _programs, 0
    return found
