"""Running one program that a model wrote, in a process and a sandbox of its own; which sandbox: `probe.py`.

A crash, an endless loop, a fork bomb, an allocation without end or a flood of output cost that program its verdict and
nothing else: every run has limits on memory, processes, file size, open files and time, and ends with all its processes
killed. At most as many programs run at once as there are cores, so that their time limits mean the same for all.

Limits: memory is limited per process, so a program of PROCESSES processes can have that many times MEMORY_BYTES.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import re
import secrets
import select
import signal
import site
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from harness.errors import UserError

SCRIPT = Path(__file__).with_name("program.py").read_text(encoding="utf-8")
MIB = 2**20
MEMORY_BYTES = 1024 * MIB  # of address space, per process
FILE_BYTES = 16 * MIB
SCRATCH_BYTES = 64 * MIB
PROCESSES = 8  # and threads, together
OPEN_FILES = 128
STARTUP_SECONDS = 30.0  # until the program's own time begins; on an idle machine it takes less than 0.1
START_ATTEMPTS = 3
REPORT_BYTES = 16384
STARTED = b"started\n"
SCRATCH = "/tmp"  # inside a sandbox
NOBODY = 65534
OWN_USERS = 2**30  # programs get users from here on, a different one for every process and slot, that nobody else has
# All that a program finds in its environment. The seed makes the order of sets, and so a verdict, the same every time.
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_slots: queue.SimpleQueue[int] = queue.SimpleQueue()
for _slot in range(CORES):
    _slots.put(_slot)


@dataclass(frozen=True)
class Program:
    """What is run: `code`, then `tests` in the same namespace.

    Before it, outside its time, the modules of `preload` are imported if they can be, and setup is executed in a
    namespace of its own; `given` names what of that the tests get: {their name: its name}.
    seconds: the time limit, an exception in the program; a program that goes on after killed_after seconds is killed.
    """

    code: str
    seconds: float
    killed_after: float
    tests: str = ""
    setup: str = ""
    given: dict[str, str] = field(default_factory=dict)
    preload: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """kind: "pass", "timeout", "assertion" (an AssertionError) or "failed"; message: the exception's, if any."""

    kind: str
    message: str = ""


@dataclass(frozen=True)
class Isolation:
    """A way to keep a program apart.

    name: as run.json has it. wrapper: what stands before the interpreter on the command line; () is a plain process,
    which has limits and a scratch folder but sees and reaches what its user does. start_as: the user that starts the
    wrapper, if it is another one. own_user: the program changes, inside, to a user that runs nothing else.
    """

    name: str
    wrapper: tuple[str, ...] = ()
    start_as: int | None = None
    own_user: bool = False


UNSAFE = Isolation("unsafe")


def execute(program: Program, isolation: Isolation) -> Outcome:
    """Run a program to its verdict; waits for a free core first. Safe to call from many threads.

    Raises UserError if its process does not start, which no program can bring about: its time begins later.
    """
    complaint = ""
    slot = _slots.get()
    try:
        for _ in range(START_ATTEMPTS):
            outcome, complaint = attempt(program, isolation, slot)
            if outcome is not None:
                return outcome
    finally:
        _slots.put(slot)
    raise UserError(f"a sandbox did not start ({complaint}); free memory or processes, then score the run again")


def attempt(program: Program, isolation: Isolation, slot: int = 0) -> tuple[Outcome | None, str]:
    """Run a program once: its outcome, or None and why (the last line on stderr) if its process did not start."""
    nonce = secrets.token_hex(16)
    with contextlib.ExitStack() as stack:
        complaints = stack.enter_context(tempfile.TemporaryFile())
        request = stack.enter_context(tempfile.TemporaryFile())
        request.write(json.dumps({"nonce": nonce, **_request(program, isolation, slot)}).encode())
        request.seek(0)
        scratch = SCRATCH
        if not isolation.wrapper:
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="program-", ignore_cleanup_errors=True))
        try:
            process = subprocess.Popen(
                [*isolation.wrapper, interpreter(), "-s", "-S", "-B", "-c", SCRIPT],
                stdin=request,
                stdout=subprocess.PIPE,
                stderr=complaints,
                cwd="/" if isolation.wrapper else scratch,
                env=ENVIRONMENT | {"HOME": scratch, "TMPDIR": scratch},
                start_new_session=True,
                **_started_as(isolation.start_as),
            )
        except OSError as error:
            return None, str(error)
        assert process.stdout is not None
        try:
            outcome = _read_outcome(process.stdout.fileno(), nonce, program.killed_after)
        finally:
            _end(process)
        return outcome, "" if outcome is not None else _last_line(complaints)


def interpreter() -> str:
    """The interpreter below any virtual environment: it starts faster and needs fewer folders."""
    return getattr(sys, "_base_executable", None) or sys.executable


def package_folders() -> list[str]:
    """Where the packages of this environment lie: programs may import what is installed."""
    return [folder for folder in site.getsitepackages() if Path(folder).is_dir()]


def _request(program: Program, isolation: Isolation, slot: int) -> dict[str, Any]:
    limits = {
        "RLIMIT_AS": MEMORY_BYTES,
        "RLIMIT_FSIZE": FILE_BYTES,
        "RLIMIT_NOFILE": OPEN_FILES,
        "RLIMIT_CORE": 0,
        "RLIMIT_CPU": math.ceil(STARTUP_SECONDS + program.killed_after),  # the clock on the wall is read outside
    }
    if isolation.wrapper:  # a plain process shares this limit with all that its user runs
        limits["RLIMIT_NPROC"] = PROCESSES
    elif sys.platform != "linux":
        del limits["RLIMIT_AS"]  # macOS knows the name and refuses the call
    return {
        "code": program.code,
        "tests": program.tests,
        "setup": program.setup,
        "given": program.given,
        "preload": program.preload,
        "seconds": program.seconds,
        "limits": limits,
        "paths": package_folders(),
        "user": OWN_USERS + (os.getpid() % 2**22) * 256 + slot % 256 if isolation.own_user else None,
    }


def _started_as(user: int | None) -> dict[str, Any]:
    return {} if user is None else {"user": user, "group": user, "extra_groups": []}


def _read_outcome(descriptor: int, nonce: str, killed_after: float) -> Outcome | None:
    """The outcome that a process reports through a pipe; None if it never said that its program started.

    Reads no more than a few kilobytes and waits no longer than the program's time, whatever the program writes or does.
    """
    verdict = re.compile(rf"\n{nonce} (pass|assertion|failed|timeout) ((?:[0-9a-f]{{2}})*)\n".encode())
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    report, started, deadline = b"", False, time.monotonic() + STARTUP_SECONDS
    while len(report) <= REPORT_BYTES:
        left = deadline - time.monotonic()
        if left <= 0 or not poller.poll(1000 * left):
            return Outcome("timeout") if started else None
        chunk = os.read(descriptor, REPORT_BYTES)
        if not chunk:
            return Outcome("failed", "the process ended without a verdict") if started else None
        report += chunk
        if not started and report.startswith(STARTED):
            started, deadline = True, time.monotonic() + killed_after
        found = verdict.search(report)
        if found:
            return Outcome(found[1].decode(), bytes.fromhex(found[2].decode()).decode(errors="replace"))
    return Outcome("failed", "it wrote to the channel of verdicts")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its session; in a sandbox, all that it started goes with it."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _last_line(file: IO[bytes]) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - 1000))
    lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "no message")
