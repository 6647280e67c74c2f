"""Running one program that a model wrote, in its own process and sandbox; the sandbox is made in `bubblewrap.py`.

Limits on memory, processes, file size, open files and time hold, and all its processes are killed: nothing costs more
than that program's verdict. As many run at once as there are cores, so that time limits mean the same for all. The
verdict is formed in a process that the program does not share (`supervisor.py`, `judge.py`).
"""

import atexit
import contextlib
import functools
import marshal
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
from typing import Any

from harness.errors import UserError
from harness.sandbox.request import SCRIPT, Program, compiled, judges_part, modules

# If memory runs out, the program goes; $1 lists the processes of its control group.
ENTER = 'echo 1000 > /proc/self/oom_score_adj; echo 0 > "$1"; shift; exec "$@"'
MIB = 2**20
MEMORY_BYTES = 1024 * MIB  # of address space, per process
FILE_BYTES = 16 * MIB
SCRATCH_BYTES = 64 * MIB  # of each of the two scratch folders
TOTAL_BYTES = MEMORY_BYTES + 256 * MIB  # of all processes of a program and its judge together, in a control group
PROCESSES = 8  # and threads, together
OPEN_FILES = 128
STARTUP_SECONDS = 30.0  # until the program's time begins; on an idle machine it takes less than 0.1
START_ATTEMPTS = 3
REPORT_BYTES = 16384
STARTED = b"started\n"
SCRATCH = "/tmp"  # inside a sandbox
OWN_USERS = 2**30  # programs and judges get users from here on
# All that a program finds in its environment. The seed makes the order of sets, and so a verdict, the same every time.
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "PYTHONHASHSEED": "0",
}
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_slots: queue.SimpleQueue[int] = queue.SimpleQueue()
for _slot in range(CORES):
    _slots.put(_slot)


@dataclass(frozen=True)
class Outcome:
    """kind: "pass", "timeout", "assertion" or "failed"; message, line: of the exception, and where in the tests it was.

    compared: how often a test compared an object of a class that the program defines.
    """

    kind: str
    message: str = ""
    compared: int = 0
    line: str = field(default="", compare=False)


@dataclass(frozen=True)
class Isolation:
    """A way to keep a program apart; `name` is run.json's.

    wrapper: what precedes the interpreter; () is a plain process, with limits alone. own_user: the program becomes a
    user that runs nothing else, and its judge another. calls: bubblewrap's filter of system calls, b"" for none.
    """

    name: str
    wrapper: tuple[str, ...] = ()
    own_user: bool = False
    calls: bytes = b""


UNSAFE = Isolation("unsafe")


def execute(program: Program, isolation: Isolation) -> Outcome:
    """Run a program to its verdict on a free core; safe to call from many threads.

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
    """Run a program once: its outcome, or None if its process did not start; and the last line on stderr."""
    nonce = secrets.token_hex(16)
    with contextlib.ExitStack() as stack:
        complaints = stack.enter_context(tempfile.TemporaryFile())
        request = stack.enter_context(tempfile.TemporaryFile())
        for part in (_shared_part(program, isolation, slot), judges_part(program, nonce)):
            data = marshal.dumps(part)
            request.write(len(data).to_bytes(8, "big") + data)
        request.flush()
        request.seek(0)
        scratch = SCRATCH
        if not isolation.wrapper:
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="program-", ignore_cleanup_errors=True))
        group = memory_group(slot) if isolation.wrapper else None
        wrapper, passed = entered(isolation, stack, group)
        try:
            process = subprocess.Popen(
                [*wrapper, interpreter(), "-s", "-S", "-B", "-c", SCRIPT],
                stdin=request,
                stdout=subprocess.PIPE,
                stderr=complaints,
                cwd="/" if isolation.wrapper else scratch,
                env=ENVIRONMENT | {"HOME": scratch, "TMPDIR": scratch},
                start_new_session=True,
                pass_fds=passed,
            )
        except OSError as error:
            return None, str(error)
        try:
            outcome = _read_outcome(process, nonce, program.killed_after)
        finally:
            end(process, group)
        complaints.seek(max(0, complaints.seek(0, os.SEEK_END) - 1000))
        lines = complaints.read().decode(errors="replace").split("\n")
        return outcome, next((line.strip() for line in reversed(lines) if line.strip()), "no message")


def interpreter() -> str:
    """The interpreter below any virtual environment: it starts faster and needs fewer folders."""
    return getattr(sys, "_base_executable", None) or sys.executable


def new_user(slot: int = 0) -> int:
    """A user that nobody else has, for this process and a slot; the next one is for its judge."""
    return OWN_USERS + os.getpid() % 2**22 * 256 + slot % 128 * 2


def package_folders() -> list[str]:
    """Where the packages of this environment lie: programs may import what is installed."""
    return [folder for folder in site.getsitepackages() if Path(folder).is_dir()]


def entered(
    isolation: Isolation, stack: contextlib.ExitStack, group: Path | None = None
) -> tuple[list[str], tuple[int, ...]]:
    """What precedes the interpreter on the command line, and the descriptors that it reads; `stack` closes them."""
    if not isolation.wrapper:
        return [], ()
    *wrapper, end = isolation.wrapper
    processes = str(group / "cgroup.procs" if group else os.devnull)
    passed: tuple[int, ...] = ()
    if isolation.calls:  # bubblewrap reads the filter of system calls from a pipe
        reading, writing = os.pipe()
        stack.callback(os.close, reading)
        os.write(writing, isolation.calls)
        os.close(writing)
        wrapper, passed = [*wrapper, "--seccomp", str(reading)], (reading,)
    return ["/bin/sh", "-c", ENTER, "sh", processes, *wrapper, end], passed


@functools.cache
def memory_group(slot: int = 0) -> Path | None:
    """A control group of TOTAL_BYTES for the programs of a slot; None where none can be made."""

    def remove(group: Path, process: int) -> None:
        if os.getpid() == process:  # not in a fork
            with contextlib.suppress(OSError):
                group.rmdir()

    for line in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root = Path("/sys/fs/cgroup", controllers)
        present = root / path.lstrip("/")
        limit = "memory.limit_in_bytes" if controllers else "memory.max"
        # In version 2 no group has both processes and groups with limits.
        for parent in (present, present.parent):
            if not (parent / "cgroup.procs").exists():
                continue
            group = parent / f"fef-dllm-{os.getpid()}-{slot}"
            try:
                group.mkdir(exist_ok=True)
                atexit.register(remove, group, os.getpid())
                (group / limit).write_text(str(TOTAL_BYTES))
            except OSError:
                remove(group, os.getpid())
                continue
            return group
    return None


def _shared_part(program: Program, isolation: Isolation, slot: int) -> dict[str, Any]:
    limits = {
        "RLIMIT_AS": MEMORY_BYTES,
        "RLIMIT_FSIZE": FILE_BYTES,
        "RLIMIT_NOFILE": OPEN_FILES,
        "RLIMIT_CORE": 0,
        "RLIMIT_CPU": math.ceil(STARTUP_SECONDS + program.killed_after),  # the clock on the wall is read outside
    }
    if isolation.wrapper:  # a plain process shares this limit with all that its user runs
        limits["RLIMIT_NPROC"] = PROCESSES + (0 if isolation.own_user else 1)  # the judge, of the same user
    elif sys.platform != "linux":
        del limits["RLIMIT_AS"]  # macOS knows the name and refuses the call
    return {
        "modules": modules(),
        "code": program.code,
        "guard": compiled(program.guard),
        "preload": program.preload,
        "seconds": program.seconds,
        "limits": limits,
        "paths": package_folders(),
        "user": new_user(slot) if isolation.own_user else None,
    }


def _read_outcome(process: subprocess.Popen[bytes], nonce: str, killed_after: float) -> Outcome | None:
    """The outcome that a process reports through a pipe; None if it never said that its program started.

    It reads a few kilobytes at most and waits no longer than the program's time, whatever the program does.
    """
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    text = "((?:[0-9a-f]{2})*)"
    verdict = re.compile(f"\n{nonce} (pass|assertion|failed|timeout) ([0-9]+) {text} {text}\n".encode())
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    report, started, deadline = b"", False, time.monotonic() + STARTUP_SECONDS
    while len(report) <= REPORT_BYTES:
        left = deadline - time.monotonic()
        if left <= 0:
            return Outcome("timeout") if started else None
        if not poller.poll(1000 * left):
            continue
        chunk = os.read(descriptor, REPORT_BYTES)
        if not chunk:
            return Outcome("failed", "the process ended without a verdict") if started else None
        report += chunk
        if not started and report.startswith(STARTED):
            started, deadline = True, time.monotonic() + killed_after
        found = verdict.search(report)
        if found:
            message, line = (bytes.fromhex(text.decode()).decode(errors="replace") for text in found.groups()[2:])
            return Outcome(found[1].decode(), message, int(found[2]), line)
    return Outcome("failed", "it wrote to the channel of verdicts")


def end(process: subprocess.Popen[bytes], group: Path | None = None) -> None:
    """Kill a process and its session; in a sandbox, all that it started goes with it, and its memory is given back."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
    deadline = time.monotonic() + 1
    while group is not None and (group / "cgroup.procs").read_bytes() and time.monotonic() < deadline:
        time.sleep(0.001)
