"""What generated programming problems share: names, and running our own reference responses.

One problem has many correct responses: one expression or several statements, a loop or a comprehension, and names of
local variables drawn at random. A response that mixes two of them (assigns `total`, returns `result`) is wrong: that is
the factorization error that these suites are there to show. Expected values come from running a reference response.
"""

from typing import Any

RESULTS = ("total", "result", "value", "out", "res")
VERBS = ("calc", "find", "get", "make", "solve", "work")
NOUNS = ("amount", "level", "number", "rate", "score", "sum")


def defined(name: str, parameters: str, lines: list[str]) -> str:
    """A function of these lines."""
    return f"def {name}({parameters}):\n" + "".join(f"    {line}\n" for line in lines)


def function_of(code: str, name: str) -> Any:
    """The function that our own generated code defines."""
    scope: dict[str, Any] = {}
    exec(code, scope)
    return scope[name]
