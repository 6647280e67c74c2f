"""The budget of pyproject.toml: tokens of each room, and statements that do one thing.

Tokens are Python's own, without comments, docstrings and line ends, so that neither short nor long
lines pay. The list of files with packed statements may only shrink.
"""

import ast
import io
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import ROOT

PACKAGES = ("harness", "model_wrappers", "tables")
SKIPPED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
BUDGET = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["budget"]


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def room_of(path: Path) -> str:
    """The package or sub-package of a file; what lies deeper belongs to the sub-package."""
    return "/".join(path.relative_to(ROOT).parent.parts[:2])


def docstring_lines(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            lines.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def tokens_of(text: str) -> int:
    skipped = docstring_lines(ast.parse(text))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.type not in SKIPPED and token.start[0] not in skipped for token in tokens)


def is_packed(node: ast.AST) -> bool:
    """Whether a statement does two things, or an expression hides a condition."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
        return any(_is_unlike(target, node.value) for target in node.targets)
    if isinstance(node, ast.IfExp):
        return any(isinstance(part, ast.IfExp) for part in (node.body, node.orelse, node.test))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _repeats_by_condition(node.left, node.right) or _repeats_by_condition(
            node.right, node.left
        )
    return False


def _is_unlike(target: ast.AST, value: ast.Tuple) -> bool:
    """Whether a tuple is assigned to names, and is no swap of these."""
    if not isinstance(target, ast.Tuple):
        return False
    return sorted(map(ast.unparse, target.elts)) != sorted(map(ast.unparse, value.elts))


def _repeats_by_condition(repeated: ast.AST, times: ast.AST) -> bool:
    """Whether text or a list is written times a condition."""
    is_text = isinstance(repeated, ast.JoinedStr)
    is_text |= isinstance(repeated, ast.Constant) and isinstance(repeated.value, str)
    conditions = (ast.Compare, ast.BoolOp, ast.UnaryOp)
    is_condition = isinstance(times, conditions)
    is_condition |= isinstance(times, ast.Call) and getattr(times.func, "id", "") == "bool"
    return (is_text or isinstance(repeated, ast.List | ast.Tuple)) and is_condition


def packed_files() -> set[str]:
    return {
        str(path.relative_to(ROOT))
        for path in sources()
        if any(is_packed(node) for node in ast.walk(ast.parse(path.read_text())))
    }


def test_no_room_has_more_tokens_than_its_budget() -> None:
    tokens: Counter[str] = Counter()
    for path in sources():
        tokens[room_of(path)] += tokens_of(path.read_text())
    over = {room: count for room, count in tokens.items() if count > BUDGET["tokens"].get(room, 0)}
    assert over == {}, "take something away, or say in the commit why the room is worth more"


def test_statements_do_one_thing_outside_the_list() -> None:
    assert packed_files() - set(BUDGET["packed"]) == set()


def test_the_list_has_no_file_that_needs_it_no_more() -> None:
    assert set(BUDGET["packed"]) - packed_files() == set()


@pytest.mark.parametrize(
    ("statement", "packed"),
    [
        ("a, b = 1, 2", True),
        ("a, b = b, a", False),
        ("a, b = call()", False),
        ("x = 1 if a else 2 if b else 3", True),
        ("x = 1 if a else 2", False),
        ("x = 's' * (n != 1)", True),
        ("x = ['a'] * bool(b)", True),
        ("x = '-' * width", False),
    ],
)
def test_what_is_packed(statement: str, packed: bool) -> None:
    assert any(is_packed(node) for node in ast.walk(ast.parse(statement))) is packed


def test_comments_docstrings_and_line_ends_are_no_tokens() -> None:
    assert tokens_of('"""Text."""\nx = (1,\n\n     2)  # why\n') == tokens_of("x = (1, 2)\n")
