"""Questions that are answered by programs, which tests judge."""

import ast
import re
from typing import Any

FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)
# Statements that test nothing.
IMPORTS = (ast.Import, ast.ImportFrom)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, *IMPORTS)


def tests_of(tests: Any, entry_point: str) -> str:
    """The tests of a question as code.

    Args:
        tests: code, or a list of its lines. If it defines check(candidate), the call is added.
        entry_point: the name of the function that the response defines, or "".

    Raises:
        ValueError: the tests are not Python, or test nothing.
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
        prompt: of the question. If it begins the function, and the response continues it, the
            prompt is a part of the program.
        entry_point: the name of the function, or "".
    """
    fence = FENCE.search(response)
    code = fence[1] if fence else response
    # A response that defines the function itself, as chat models do, stands alone.
    signature = f"def {entry_point}("
    if entry_point and signature in prompt and signature not in code:
        code = f"{prompt.rstrip()}\n{code}"
    return code
