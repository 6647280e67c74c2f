"""Which names a problem's tests take from the program, and which modules: read off their text, outside any sandbox."""

import ast
import builtins
from collections.abc import Iterable


def needs(tests: str, prelude: str = "", entry: str = "", given: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """(names, modules) that tests need of a program.

    prelude: what is executed before them; entry: its function that is the program's; given: names they have anyway.

    A program cannot replace a builtin or what the prelude defines, except `entry`, and not a module that the tests take
    attributes of. Where the tests need nothing else, a builtin that they call is the function they are for: some tasks
    of MBPP ask for one.
    """
    try:
        tree = ast.parse(tests)
    except SyntaxError:
        return [], []
    free = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    free -= _bound(tree).union(given)
    own = free - set(dir(builtins)) - (_prelude_names(prelude) - {entry})
    bases = {_name(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    called = {_name(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    modules = own & bases - {entry}
    return sorted(own - modules or (called & free if not modules else ())), sorted(modules)


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
    """The names of a prelude's own namespace, not those within its functions."""
    try:
        tree = ast.parse(prelude)
    except SyntaxError:
        return set()
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    rest = [node for node in tree.body if node not in functions]
    return {node.name for node in functions}.union(*map(_bound, rest))
