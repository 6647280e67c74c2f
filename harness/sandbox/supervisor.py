"""Inside a sandbox: one process becomes the program's, the other its judge. `execute.py` starts it, from code it sends.

The judge alone reads the tests and the report's nonce, and empties their file. The program's process has none of its
descriptors and cannot read its memory: the judge is another user, or not dumpable. The report is "started", then one
line: nonce, kind, number of comparisons, and message and line of the tests in hex.

The program's process executes the program, then answers its judge's questions. It runs a program as OpenCompass's
evaluators run one: in a new namespace, streams swallowed, a time limit by SIGALRM. A program may change all of this
process: what leaves it are values, and the judge alone says what they are worth.
"""

from __future__ import annotations

import _signal as signal  # the module without the enumerations, which take time to make
import _sitebuiltins
import builtins
import gc
import io
import os
import resource
import sys
from importlib import import_module

from harness.sandbox.judge import judge, prepared
from harness.sandbox.values import LONGEST_MESSAGE, Channel, OutOfTime, decode, encode

TYPE_CHECKING = False  # typing takes longer to load than most programs to run
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NOT_DUMPABLE = (4, 0)  # prctl's PR_SET_DUMPABLE


def confine(limits: dict[str, int], user: int | None) -> None:
    """Become `user`, if one is named, and lower the limits (bytes, seconds or counts by the name in `resource`)."""
    try:  # if the machine runs out of memory, it is this process that goes; bubblewrap is started with that already
        with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123 (here and below: what loads fast)
            file.write("1000")
    except OSError:
        pass
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)  # from root to a user: all capabilities go
    for name, value in limits.items():
        which = getattr(resource, name)
        hard = resource.getrlimit(which)[1]
        lowered = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (lowered, lowered))


def main(request: dict[str, Any], read_part: Callable[[], dict[str, Any]]) -> None:
    """Part from the judge, run the program, and leave without its exit handlers.

    request: what both processes read; read_part: reads what the judge alone gets.
    """
    # What the interpreter's -S leaves out: the folders of packages, and what `site` puts into builtins.
    sys.path[:] = [path for path in sys.path if path] + request["paths"]
    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    builtins.help = _sitebuiltins._Helper()
    for name in request["preload"]:
        try:
            import_module(name)
        except Exception:  # then the program's import fails and says why
            continue
    gc.freeze()  # what is there before the two part is not written to by a collection, which would copy it
    questions, answers = os.pipe(), os.pipe()
    if os.fork() == 0:
        try:
            _become_program(request, Channel(questions[0], answers[1]), (questions[1], answers[0]))
        finally:
            os._exit(1)
    os.close(questions[0])
    os.close(answers[1])
    _become_judge(request, Channel(answers[0], questions[1]), read_part)
    os._exit(0)


def _become_program(request: dict[str, Any], channel: Channel, others: tuple[int, int]) -> None:
    leave = os._exit
    for descriptor in others:
        os.close(descriptor)
    confine(request["limits"], request["user"])
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    for name, _ in request["modules"]:
        del sys.modules[name]
    try:
        serve(channel, request["code"], request["guard"], request["seconds"])
    finally:
        leave(1)


def _become_judge(request: dict[str, Any], channel: Channel, read_part: Callable[[], dict[str, Any]]) -> None:
    user = request["user"]
    if user is not None:
        user += 1
    elif sys.platform == "linux":
        import ctypes  # here, for it takes time, and a change of user has the same effect

        ctypes.CDLL(None).prctl(*NOT_DUMPABLE, 0, 0, 0)
    tests = read_part()
    os.ftruncate(0, 0)
    confine(request["limits"], user)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 (keeps what tests print from the report)
    scope = prepared(tests)
    channel.receive()  # the program's process is ready
    os.write(1, b"started\n")
    kind, message, line, compared = judge(channel, tests, scope)
    texts = " ".join(text.encode("utf-8", "replace").hex() for text in (message, line))
    os.write(1, f"\n{tests['nonce']} {kind} {compared} {texts}\n".encode())


class Sink(io.StringIO):
    """Keeps what a program prints from being seen; reading fails."""

    def read(self, *_: Any) -> Any:
        """Raises OSError."""
        raise OSError

    readline = readlines = read

    def readable(self) -> bool:
        """Never."""
        return False


def serve(channel: Channel, code: str, guard: Any, seconds: float) -> None:
    """Execute `guard`, compiled, in a new namespace and, at the judge's first question, the code; answer until it is
    done.

    seconds: the time of the code and the answers; then an exception in the program.
    """
    # Bound here, for the program may replace what the names of `builtins` and of modules stand for.
    execute, compiled, set_timer, timer = exec, compile, signal.setitimer, signal.ITIMER_REAL
    current, this, leave, everything, late = os.getpid, os.getpid(), os._exit, BaseException, OutOfTime
    described = _raised
    begun = busy = over = False

    def stop(number: int, frame: object) -> None:
        nonlocal over
        if busy:
            raise late("Timed out!")
        over = True  # between two questions: the next one raises

    scope: dict[str, Any] = {}
    objects = Objects()
    execute(guard, {})
    channel.send(b"ready")
    question = channel.receive()
    sys.stdin = sys.stdout = sys.stderr = Sink()
    signal.signal(signal.SIGALRM, stop)
    set_timer(timer, seconds)
    while True:
        try:
            busy = True
            if over:
                over = False
                raise late("Timed out!")
            if not begun:  # dont_inherit: this file's __future__ import is not the program's
                begun = True
                execute(compiled(code, "<string>", "exec", dont_inherit=True), scope)
            reply = objects.encoded(["value", objects.answer(question, scope)])
        except late:
            reply = objects.encoded(["timeout"])
        except everything as error:
            reply = objects.encoded(described(error))
        busy = False
        if current() != this:  # a child that came back from the program
            leave(0)
        channel.send(reply)
        question = channel.receive()


class Objects:
    """The objects of a program that are no data: they are kept here, and their numbers stand for them."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def answer(self, question: bytes, scope: dict[str, Any]) -> Any:
        """What the judge wants: values of the program's namespace by name, or an operation on an object."""
        what, *details = decode(question, self._kept.__getitem__, lambda name, value: value)
        if what == "look":
            return {name: scope[name] for name in details if name in scope}
        return OPERATIONS[what](*details)

    def encoded(self, reply: list[Any]) -> bytes:
        """A reply to the judge; a value that is nested too deep is an object of the program's."""
        try:
            return encode(reply, self._keep)
        except RecursionError:
            return encode([reply[0], self], lambda value: self._keep(reply[1]))

    def _keep(self, value: Any) -> int:
        self._kept.append(value)
        return len(self._kept) - 1


OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda value, arguments, named: value(*arguments, **named),
    "attribute": getattr,
    "item": lambda value, key: value[key],
    "length": len,
    "truth": bool,
    "iterator": iter,
    "next": next,
    "text": str,
}


def _raised(error: BaseException) -> list[Any]:
    """An exception as data: the builtin classes it is of, its name, its message."""
    try:
        text: str | None = "".join([str(error)])[:LONGEST_MESSAGE]  # join: a str, where __str__ returned a subclass
    except BaseException:
        text = None
    classes = [each.__name__ for each in type(error).__mro__ if getattr(builtins, each.__name__, None) is each]
    return ["raised", classes, type(error).__name__, text]
