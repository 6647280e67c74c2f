"""Whether bubblewrap isolates a program here: its command line, its filter of system calls, a probe that shows it.

The probe tries, inside, to reach a socket of this machine and the network, to list the home folder, to read and write a
file outside, and to start more processes than it may: one success, and the sandbox is not used. The kernel sets no
limit on root's processes; so where root asks, the program becomes an unprivileged user inside.
"""

import errno
import functools
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.sandbox import execute
from harness.sandbox.execute import PROCESSES, SCRATCH, Isolation, interpreter, memory_group, package_folders
from harness.sandbox.request import Program

WITHOUT = "or --unsafe-code-execution to run such code unprotected"
# What programs see of the system, read-only, besides the interpreter's folders; what of it is missing is left out.
FOLDERS = ("/usr", "/bin", "/sbin", *sorted(map(str, Path("/").glob("lib*"))), "/nix/store")
FILES = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime")
OWN_FOLDERS = ("/proc", "/dev", SCRATCH)  # made for the sandbox
NAMESPACES = ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try")
MAY_CHANGE_USER = ("--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
# System calls that a program may not make; they fail with an error number, as on a system that lacks them.
REFUSED = [
    # memory and queues that outlive a process
    *("shmget", "shmat", "shmctl", "semget", "msgget", "mq_open", "memfd_create", "memfd_secret"),
    # namespaces, mounts
    *("unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen", "fsconfig"),
    *("fsmount", "fspick", "mount_setattr"),
    # other processes
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_open", "pidfd_getfd", "kcmp"),
    # the kernel
    *("keyctl", "add_key", "request_key", "bpf", "perf_event_open", "userfaultfd", "io_setup", "io_uring_setup"),
    *("io_uring_enter", "io_uring_register", "fanotify_init", "name_to_handle_at", "open_by_handle_at", "personality"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot", "swapon", "swapoff"),
    *("syslog", "acct", "quotactl", "quotactl_fd", "settimeofday", "clock_settime", "sethostname", "setdomainname"),
    *("iopl", "ioperm", "modify_ldt"),
]
NEW_NAMESPACES = [0x20000 << bit for bit in range(14) if 0x7E020000 & (0x20000 << bit)]  # CLONE_NEW*

PROBE = """
import contextlib, os, signal, socket, time

def works(action, *arguments):
    with contextlib.suppress(OSError):
        action(*arguments)
        return True

def reach(address):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(address)

def names(folder):
    with contextlib.suppress(OSError):
        return set(os.listdir(folder))
    return set()

def processes():
    started = []
    with contextlib.suppress(OSError):
        while len(started) < most_processes:
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            started.append(child)
    for child in started:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return len(started)

assert not works(socket.create_connection, ("127.0.0.1", port), 2), "connect to a server of this machine"
assert not works(reach, ("192.0.2.1", 9)), "reach the network"
assert not names(home) - set(known), "list the home folder"
assert not works(open, outside + "/planted"), "read files outside its scratch folder"
assert not works(open, outside + "/new", "w"), "write files outside its scratch folder"
assert works(open, "own", "w"), "not write into its scratch folder"
assert processes() < most_processes, "start processes without limit"
"""


@dataclass(frozen=True)
class Containment:
    """How model-written code is run here: the isolation, None if it is not; missing: why there is no sandbox, or ""."""

    isolation: Isolation | None
    missing: str = ""


def choose(unsafe: bool = False) -> Containment:
    """The sandbox that works here; without one a plain process if `unsafe`, else nothing. Probes once per process."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        missing = f"no sandbox (bubblewrap is not installed); install bubblewrap, {WITHOUT}"
    else:
        isolation = sandbox(bwrap)
        complaint = _probed(isolation)
        if not complaint:
            return Containment(isolation)
        missing = f"no sandbox ({complaint}); let bubblewrap make namespaces, {WITHOUT}"
    return Containment(execute.UNSAFE if unsafe else None, missing)


def not_enforced(isolation: Isolation) -> list[str]:
    """What this machine does not keep a program from, in words; empty where all limits hold."""
    missing = []
    if not isolation.wrapper:
        missing.append("files, processes and the network are open to it")
    elif not isolation.calls:
        missing.append("system calls are not filtered, so shared memory and nested namespaces are not limited")
    if not isolation.wrapper or memory_group() is None:
        missing.append("memory is limited for each process, not for all of a program together")
    return missing


def whole_process(isolation: Isolation, scratch: str, shown: Sequence[str] = ()) -> tuple[Isolation, int | None]:
    """The sandbox of a process that evaluates, and the user that it has to become; None where it stays what it is.

    isolation: of `choose`, with a wrapper. The process sees what programs see and the paths `shown`, writes to
    `scratch` alone, and has no network.
    """
    user = execute.new_user() if isolation.own_user else None
    if user is not None:
        os.chown(scratch, user, user)
    may = MAY_CHANGE_USER if isolation.own_user else ("--cap-drop", "ALL")
    namespaces = (*NAMESPACES, *may) if os.geteuid() == 0 else ("--unshare-all",)
    command = _command(isolation.wrapper[0], namespaces, shown, scratch)
    return Isolation(isolation.name, command, own_user=isolation.own_user, calls=compiled_filter(sockets=True)), user


def sandbox(bwrap: str) -> Isolation:
    """How bubblewrap is called for a program."""
    root = os.geteuid() == 0
    # Where the program's user is bubblewrap's, no process of bubblewrap's may stay: through its folder in /proc the
    # channel of the verdicts would be open. So the judge, whose folder is closed, is the first process.
    namespaces = (*NAMESPACES, *MAY_CHANGE_USER) if root else ("--unshare-all", "--as-pid-1")
    return Isolation("bubblewrap", _command(bwrap, namespaces), own_user=root, calls=compiled_filter())


@functools.cache
def compiled_filter(sockets: bool = False) -> bytes:
    """The filter for this machine; b"" where libseccomp is missing. sockets: allow all families, without a network."""
    try:
        import pyseccomp
    except (ImportError, OSError, RuntimeError):
        return b""
    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    rules.set_attr(pyseccomp.Attr.ACT_BADARCH, pyseccomp.ERRNO(errno.ENOSYS))  # calls of a 32-bit program
    for name in REFUSED:
        try:
            rules.add_rule(pyseccomp.ERRNO(errno.EPERM), name)
        except OSError:  # this machine has no such call, or this library does not know it
            continue
    # The flags of clone3 lie in memory; the C library falls back to clone.
    rules.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    for flag in NEW_NAMESPACES:
        rules.add_rule(pyseccomp.ERRNO(errno.EPERM), "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, flag, flag))
    if not sockets:
        for name in ("socket", "socketpair"):
            other = pyseccomp.Arg(0, pyseccomp.NE, socket.AF_UNIX)
            rules.add_rule(pyseccomp.ERRNO(errno.EAFNOSUPPORT), name, other)
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def lacks(isolation: Isolation) -> str:
    """What keeps an isolation from being used, in one line; "" if it passes the probe."""
    # Of the home folder, names that the sandbox shows on purpose: the interpreter may lie there. One inside a folder of
    # the system is no secret.
    folder = Path(os.environ.get("HOME") or "/")
    shown = [*map(Path, (*FOLDERS, *FILES, *OWN_FOLDERS)), *map(Path, _interpreter_folders())]
    secret = not any(folder.is_relative_to(path) for path in shown)
    known = [path.relative_to(folder).parts[0] for path in shown if secret and path.is_relative_to(folder)]
    with tempfile.TemporaryDirectory(prefix="probe-") as outside, socket.create_server(("127.0.0.1", 0)) as server:
        Path(outside).chmod(0o777)  # so that it is the sandbox that keeps a program out
        Path(outside, "planted").write_text("planted", encoding="utf-8")
        facts = {"port": server.getsockname()[1], "home": str(folder) if secret else "", "known": known}
        facts |= {"outside": outside, "most_processes": 2 * PROCESSES}
        code = "".join(f"{name} = {value!r}\n" for name, value in facts.items()) + PROBE
        outcome, complaint = execute.attempt(Program(code, seconds=10.0, killed_after=12.0), isolation)
    if outcome is None:
        fault = "cannot make namespaces" if complaint.startswith("bwrap: ") else "does not work"
        return f"bubblewrap {fault} here: {complaint.removeprefix('bwrap: ')}"
    if outcome.kind == "assertion":
        return f"bubblewrap does not isolate here: a program can {outcome.message}"
    return "" if outcome.kind == "pass" else f"bubblewrap does not work here: {outcome.message or outcome.kind}"


def _command(
    bwrap: str, namespaces: tuple[str, ...], also: Sequence[str] = (), writable_folder: str | None = None
) -> tuple[str, ...]:
    """bubblewrap's command line: a read-only view, new /proc, /dev and scratch, and perhaps a folder to write to."""
    scratch = ["--perms", "1777", "--size", str(execute.SCRATCH_BYTES), "--tmpfs"]

    def parents(path: Path) -> list[str]:
        """Made beforehand: bubblewrap may hide them from other users."""
        return [word for above in reversed(path.parents[:-1]) for word in ("--perms", "0755", "--dir", str(above))]

    def shown(name: str) -> list[str]:
        path = Path(name)
        words = parents(path)
        if name in FOLDERS and path.is_symlink():  # /bin -> usr/bin
            return [*words, "--symlink", str(path.readlink()), name]
        return [*words, "--ro-bind", name, name] if path.exists() else []

    words = [bwrap, *namespaces, "--die-with-parent", "--new-session"]
    words += [word for name in (*FOLDERS, *FILES) for word in shown(name)]
    words += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"]
    words += [*scratch, "/dev/shm", "--remount-ro", "/dev", *scratch, SCRATCH]
    words += [word for name in (*_interpreter_folders(), *also) for word in shown(name)]
    if writable_folder is not None:
        words += [*parents(Path(writable_folder)), "--bind", writable_folder, writable_folder]
    return (*words, "--remount-ro", "/", "--chdir", SCRATCH, "--")


def _interpreter_folders() -> list[str]:
    """The folders that Python needs and FOLDERS do not hold, as they are named and as they really lie."""
    named = [*map(Path, (sys.base_prefix, sys.prefix, *package_folders())), Path(interpreter()).parent]
    needed: list[Path] = []
    for path in [*named, *(path.resolve() for path in named)]:
        if not any(path.is_relative_to(above) for above in [*map(Path, FOLDERS), *needed]):
            needed.append(path)
    return [str(path) for path in needed]


_probed = functools.cache(lacks)
