"""One program's run, in the process that is its alone: it executes the program, then answers its judge's questions.

It runs a program as OpenCompass's evaluators run one: in a new namespace, streams swallowed, a time limit by
SIGALRM. It knows neither the tests nor how a verdict is reported. A program may change all of this process: what leaves
it are values, and the judge alone says what they are worth.
"""

from __future__ import annotations

import _signal as signal  # the module without the enumerations, which take time to make
import builtins
import io
import os
import sys

from harness.sandbox.values import Channel, decode, encode

TYPE_CHECKING = False  # typing takes longer to load than most programs to run
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LONGEST_MESSAGE = 1000  # characters; a judge cuts at the same


class OutOfTime(Exception):
    """The time limit; an ordinary exception, as in OpenCompass's evaluators: a program may catch it."""


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
