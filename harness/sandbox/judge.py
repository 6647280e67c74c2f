"""The verdict on one program: its tests, run in a process that the program does not share.

The tests call the program's functions through stand-ins; arguments and results cross as data (`values.py`), so every
comparison is one of this process's builtin values. An object of a class that the program defines stays there. Its
stand-in answers calls, iteration, indexing, truth, length and attributes with data; it is equal to nothing but itself,
and a test that compares one is counted.
"""

from __future__ import annotations

import builtins
from importlib import import_module

from harness.sandbox.values import LONGEST_MESSAGE, Broken, Channel, OutOfTime, decode, encode

TYPE_CHECKING = False  # typing takes longer to load than most programs to run
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

TESTS_FILE = "<string>"  # what tests are compiled as
ALIASES = {"np": "numpy", "pd": "pandas"}


class Foreign:
    """Stands for an object in the program's process that is no data."""

    def __init__(self, judge: ProgramProcess, number: int) -> None:
        self._judge, self._number = judge, number

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._judge.ask("call", self, list(arguments), named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._judge.ask("attribute", self, name)

    def __getitem__(self, key: Any) -> Any:
        return self._judge.ask("item", self, key)

    def __iter__(self) -> Iterator[Any]:
        return self._judge.ask("iterator", self)

    def __next__(self) -> Any:
        return self._judge.ask("next", self)

    def __len__(self) -> int:
        return int(self._judge.ask("length", self))

    def __bool__(self) -> bool:
        return self._judge.ask("truth", self) is True

    def __str__(self) -> str:
        return str.__str__(self._judge.ask("text", self))

    def __eq__(self, other: object) -> bool:
        self._judge.compared += 1
        return self is other

    __hash__ = object.__hash__


class ProgramProcess:
    """The program's process as its judge sees it: answers become values, stand-ins and exceptions."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._classes: dict[tuple[str, type], type] = {}
        self.compared = 0  # objects of classes that the program defines

    def ask(self, *question: Any) -> Any:
        """The answer to a question; the first has the program executed. Raises what it raised, OutOfTime or Broken."""
        self._channel.send(encode(list(question), self._number))
        reply = self._channel.receive()
        try:
            kind, *parts = decode(reply, lambda number: Foreign(self, number), self._like)
            if kind == "value":
                return parts[0]
            raised = OutOfTime("Timed out!") if kind == "timeout" else self._exception(*parts)
        except Exception as error:  # what no `encode` writes
            raise Broken(f"the program's process answered nonsense: {error}") from None
        raise raised

    def _number(self, value: Any) -> int:
        if type(value) is Foreign:
            return value._number
        raise TypeError(f"a test passes a {type(value).__name__}, which is no data")

    def _like(self, name: str, value: Any) -> Any:
        """An object of a program's class that is a builtin value too: equal to what that is equal to."""
        judge = self
        base: Any = type(value)

        def counted(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
            def counting(this: Any, other: Any) -> Any:
                judge.compared += 1
                return compare(this, other)

            return counting

        if (name, base) not in self._classes:
            methods = {"__eq__": counted(base.__eq__), "__ne__": counted(base.__ne__), "__hash__": base.__hash__}
            self._classes[name, base] = type(name, (base,), methods)
        return self._classes[name, base](value)

    def _exception(self, classes: list[str], name: str, text: str | None) -> BaseException:
        bases = [getattr(builtins, each, None) for each in classes]
        base = next(each for each in bases if isinstance(each, type) and issubclass(each, BaseException))
        message = "an exception without a message" if text is None else str(text)[:LONGEST_MESSAGE]
        methods = {"__init__": lambda self: None, "__str__": lambda self: message}
        return type(str(name), (base,), methods)()


def prepared(tests: dict[str, Any]) -> dict[str, Any]:
    """The namespace of the tests, before the program adds its part.

    tests: "prelude" is executed in it; "setup" in another one, and "given" names what of that the tests get.
    """
    setup: dict[str, Any] = {}
    exec(tests["setup"], setup)
    scope: dict[str, Any] = {}
    try:
        exec(compile(tests["prelude"], "<prelude>", "exec", dont_inherit=True), scope)
    except SyntaxError:  # then what the tests need of it is the program's
        scope.clear()
    return scope | {name: setup[value] for name, value in tests["given"].items()}


def judge(channel: Channel, tests: dict[str, Any], scope: dict[str, Any]) -> tuple[str, str, str, int]:
    """Have the program executed, then run its tests: (kind, message, line, how often tests compared program objects).

    kind, line: as in `execute.Outcome`. tests: "tests" are executed in `scope`, of `prepared`, with the "names" of the
    program and the "modules" that it has to have, imported here.
    """
    judged = ProgramProcess(channel)
    try:
        for name in tests["names"]:
            scope.pop(name, None)
        answer = judged.ask("look", *tests["names"], *tests["modules"])
        # What was not judged for stays out: it could stand for a builtin, or for what the tests bring.
        scope |= {name: answer[name] for name in tests["names"] if name in answer}
        scope |= {name: import_module(ALIASES.get(name, name)) for name in tests["modules"] if name in answer}
        scope |= {name: _counting(judged, scope[name]) for name in tests["given"]}
        exec(compile(tests["tests"], TESTS_FILE, "exec", dont_inherit=True), scope)
    except OutOfTime:
        return "timeout", "", "", judged.compared
    except BaseException as error:
        kind = "assertion" if isinstance(error, AssertionError) else "failed"
        try:
            message = str(error)[:LONGEST_MESSAGE]
        except Exception:
            message = "an exception without a message"
        return kind, message, _failing_line(error, tests["tests"]), judged.compared
    return "pass", "", "", judged.compared


def _counting(judged: ProgramProcess, compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A comparison of the tests that looks at classes first: what it refuses for that is counted too."""

    def counted(actual: Any, expected: Any) -> Any:
        if isinstance(actual, Foreign):
            judged.compared += 1
        return compare(actual, expected)

    return counted


def _failing_line(error: BaseException, tests: str) -> str:
    """The innermost line of the tests in which an exception was raised; "" if it was elsewhere."""
    number, step = 0, error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == TESTS_FILE:
            number = step.tb_lineno
        step = step.tb_next
    return tests.splitlines()[number - 1].strip()[:200] if number else ""
