"""What is sent into a sandbox: the modules that run there, the program, and what its judge alone reads."""

import ast
import builtins
import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

# What the interpreter in the sandbox is started with, where the harness is not installed: it reads the first part of
# the request, which brings the modules.
SCRIPT = """
import marshal, os, sys
from types import ModuleType

def read_part():
    left = int.from_bytes(os.read(0, 8), "big")
    parts = []
    while left:
        parts.append(os.read(0, left))
        left -= len(parts[-1])
    return marshal.loads(b"".join(parts))

request = read_part()
for name, code in request["modules"]:
    module = sys.modules[name] = ModuleType(name)
    exec(code, module.__dict__)
module.main(request, read_part)
"""
MODULES = ("values", "judge", "supervisor")  # in the order of their imports


@dataclass(frozen=True)
class Program:
    """What is run: `code`; then `tests` against its functions, by its judge.

    preload, guard: modules imported and code executed before its time begins. prelude: the trusted part of the problem
    before the tests; entry: its function that is the program's. setup: code executed in another namespace, of which the
    tests get `given`, {their name: its name}. After `seconds` the program has an exception; then it is killed.
    """

    code: str
    seconds: float
    killed_after: float
    tests: str = ""
    prelude: str = ""
    entry: str = ""
    guard: str = ""
    setup: str = ""
    given: dict[str, str] = field(default_factory=dict)
    preload: tuple[str, ...] = ()


@functools.cache
def compiled(text: str, name: str = "<setup>") -> CodeType:
    """Code of the harness or the evaluators: the interpreter in the sandbox is of the same version."""
    return compile(text, name, "exec", dont_inherit=True)


@functools.cache
def modules() -> list[tuple[str, CodeType]]:
    """The modules that run in the sandbox, compiled."""
    files = {name: Path(__file__).with_name(f"{name}.py") for name in MODULES}
    return [
        (f"harness.sandbox.{name}", compiled(path.read_text(encoding="utf-8"), f"<{name}>"))
        for name, path in files.items()
    ]


def judges_part(program: Program, nonce: str) -> dict[str, Any]:
    """What the judge alone reads."""
    names, imported = needs(program.tests, program.prelude, program.entry, program.given)
    return {
        "nonce": nonce,
        "tests": program.tests,
        "prelude": program.prelude,
        "setup": compiled(program.setup),
        "given": program.given,
        "names": names,
        "modules": imported,
    }


def needs(tests: str, prelude: str = "", entry: str = "", given: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """(names, modules) that tests need of a program, besides those of `prelude` and the `given` names.

    A program replaces no builtin, nothing that the prelude defines except `entry`, and no module that the tests take
    attributes of. Where they need nothing else, a builtin that they call is what they are for, as in tasks of MBPP.
    """
    try:
        tree = ast.parse(tests)
    except SyntaxError:
        return [], []
    free = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    free -= _bound(tree).union(given)
    needed = free - set(dir(builtins)) - (_prelude_names(prelude) - {entry})
    bases = {_name(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    called = {_name(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    modules = needed & bases - {entry}
    return sorted(needed - modules or (called & free if not modules else ())), sorted(modules)


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _bound(tree: ast.AST) -> set[str]:
    """The names that a text binds itself, in any scope."""
    bound = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).split(".")[0])
    return bound


def _prelude_names(prelude: str) -> set[str]:
    """The names of a prelude's namespace, not those within its functions."""
    try:
        tree = ast.parse(prelude)
    except SyntaxError:
        return set()
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    rest = [node for node in tree.body if node not in functions]
    return {node.name for node in functions}.union(*map(_bound, rest))
