"""Questions whose responses are programs, judged by tests."""

import ast
import re
from typing import Any

FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)
# Statements that make no test.
IMPORTS = (ast.Import, ast.ImportFrom)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, *IMPORTS)


def tests_of(tests: Any, entry_point: str) -> str:
    """The tests of a question as code.

    Args:
        tests: code, or a list of its lines; of a function check(candidate) the call is added.
        entry_point: the function that the response defines, "" where it has no name.

    Raises:
        ValueError: the tests are no Python, or test nothing.
    """
    code = "\n".join(tests) if isinstance(tests, list) else str(tests)
    try:
        body = ast.parse(code).body
    except SyntaxError as error:
        raise ValueError(f"tests are no Python: {error.msg}") from error
    checked = any(isinstance(part, ast.FunctionDef) and part.name == "check" for part in body)
    if checked and entry_point:
        return f"{code}\ncheck({entry_point})"
    if not any(map(_tests, body)):
        raise ValueError(
            "tests assert and call nothing, so every program would pass; write asserts, or "
            "check(candidate) and an entry_point"
        )
    return code


def _tests(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call)
    return not isinstance(statement, DEFINITIONS)


def code_in(response: str, prompt: str, entry_point: str) -> str:
    """The program of a response: its first Markdown fence, or all of it.

    Args:
        response: a text.
        prompt: of the question; it comes first where it begins a function that the response ends.
        entry_point: that function, or "".
    """
    fence = FENCE.search(response)
    code = fence[1] if fence else response
    begun = f"def {entry_point}("
    if entry_point and begun in prompt and begun not in code:
        code = f"{prompt.rstrip()}\n{code}"
    return code
