"""One program's run, from inside its sandbox: what `harness/sandbox/execute.py` starts, the request as JSON on stdin.

It gives up root, where it was started as root, lowers its own limits, runs the setup, and then the program, as
OpenCompass's evaluators run one: in a namespace of its own, streams swallowed, a time limit by SIGALRM. The report is
"started", then one line: the request's nonce, the kind of result, a message in hex.

It is passed to the interpreter as text and imports neither the harness nor OpenCompass, nor anything that takes time.

Limit: the program shares this process, as it does in OpenCompass's evaluators. One that searches the interpreter for
the nonce can forge its own verdict, and nothing else.
"""

from __future__ import annotations

import _sitebuiltins
import builtins
import io
import json
import os
import resource
import signal
import sys
from contextlib import suppress
from importlib import import_module

LONGEST_MESSAGE = 1000  # characters


class OutOfTime(Exception):
    """The time limit; an ordinary exception, as in OpenCompass's evaluators: a program may catch it."""


class Sink(io.StringIO):
    """Keeps what a program prints from being seen; reading fails."""

    def read(self, size: int | None = -1, /) -> str:
        """Raises OSError."""
        raise OSError

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        """Raises OSError."""
        raise OSError

    def readlines(self, hint: int = -1, /) -> list[str]:  # type: ignore[override]
        """Raises OSError."""
        raise OSError

    def readable(self) -> bool:
        """Never."""
        return False


def confine(limits: dict[str, int], user: int | None) -> None:
    """Become `user`, if one is named, and lower the limits (bytes, seconds or counts by the name in `resource`).

    Raises OSError or ValueError where the system refuses.
    """
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
        file.write("1000")  # if the machine runs out of memory, it is this process that goes
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)  # from root to a user: all capabilities go
    for name, value in limits.items():
        which = getattr(resource, name)
        hard = resource.getrlimit(which)[1]
        lowered = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (lowered, lowered))


def complete_interpreter(paths: list[str]) -> None:
    """Supply what the interpreter's -S leaves out: the folders of packages, and what `site` puts into builtins."""
    sys.path[:] = [path for path in sys.path if path] + paths
    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    builtins.help = _sitebuiltins._Helper()


def run(code: str, tests: str, given: dict[str, object], seconds: float) -> tuple[str, str]:
    """Execute code, then tests in the same namespace with `given` added: (kind, message).

    kind: "pass", "timeout", "assertion" (an AssertionError), "failed" (anything else that was raised).
    """
    # Bound here, for the program may replace what the names of `builtins` and of modules stand for.
    execute, compiled, text, set_timer, timer = exec, compile, str, signal.setitimer, signal.ITIMER_REAL
    out_of_time, assertion, everything = OutOfTime, AssertionError, BaseException

    def stop(number: int, frame: object) -> None:
        raise out_of_time("Timed out!")

    def described(error: BaseException) -> str:
        try:
            return "".join([text(error)])[:LONGEST_MESSAGE]  # join: a str, where __str__ returned a subclass
        except everything:
            return "an exception without a message"

    scope: dict[str, object] = {}
    sys.stdin = sys.stdout = sys.stderr = Sink()
    try:
        set_timer(timer, seconds)
        signal.signal(signal.SIGALRM, stop)
        try:  # dont_inherit: this file's own __future__ import is not the program's
            execute(compiled(code, "<string>", "exec", dont_inherit=True), scope)
            scope.update(given)
            execute(compiled(tests, "<string>", "exec", dont_inherit=True), scope)
        finally:
            set_timer(timer, 0)
    except out_of_time:
        return "timeout", ""
    except assertion as error:
        return "assertion", described(error)
    except everything as error:
        return "failed", described(error)
    return "pass", ""


def main() -> None:
    """Read the request, run the program, report, and leave without the program's exit handlers."""
    write, leave, current, own = os.write, os._exit, os.getpid, os.getpid()
    request = json.loads(sys.stdin.buffer.read())
    nonce = request.pop("nonce")
    complete_interpreter(request["paths"])
    confine(request["limits"], request["user"])
    for name in request["preload"]:
        with suppress(Exception):  # then the program's own import fails, and it is told why
            import_module(name)
    setup: dict[str, object] = {}
    exec(compile(request["setup"], "<setup>", "exec", dont_inherit=True), setup)
    given = {name: setup[value] for name, value in request["given"].items()}
    report = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    write(report, b"started\n")
    kind, message = run(request["code"], request["tests"], given, request["seconds"])
    if current() == own:  # and not a child that came back from the program
        write(report, f"\n{nonce} {kind} {message.encode('utf-8', 'replace').hex()}\n".encode())
    leave(0)


if __name__ == "__main__":
    main()
