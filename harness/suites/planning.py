"""Puzzles that need planning, after Dream's (arXiv 2508.15487): Sudoku of 4 by 4 cells and
countdown. Both are only generated.

`sudoku` fills the empty cells of a grid, `countdown` makes a number out of three others. Responses
are judged by the rules, so that any right solution counts.
"""

import ast
import json
import operator
import re
from collections import Counter
from fractions import Fraction
from functools import lru_cache
from itertools import permutations, product
from random import Random

from harness.suites.lists import judged_suite
from harness.suites.spec import Problem

DIGITS = "1234"
EMPTY = "0"
# The cells of columns, rows and boxes, numbered row by row: each of these has every digit once.
COLUMNS = [range(first, 16, 4) for first in range(4)]
ROWS = [range(first, first + 4) for first in range(0, 16, 4)]
BOXES = [(first, first + 1, first + 4, first + 5) for first in (0, 2, 8, 10)]
UNITS = (*COLUMNS, *ROWS, *BOXES)
OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def draw_sudoku(rng: Random) -> Problem:
    """Draw a grid with four to ten empty cells, and a solution; there may be others."""
    solution = rng.choice(grids())
    puzzle = list(solution)
    for cell in rng.sample(range(16), rng.randint(4, 10)):
        puzzle[cell] = EMPTY
    cells = "".join(puzzle)
    question = f"Fill the Sudoku, where {EMPTY} is an empty cell:\n{written(cells)}"
    row = {"prompt": question, "answer": cells}
    return Problem(f"sudoku {cells}", question, written(solution), row)


@lru_cache
def grids() -> list[str]:
    """The 288 grids that obey the rules, each with its cells row by row."""
    rows = map("".join, permutations(DIGITS))
    return [cells for cells in map("".join, product(rows, repeat=4)) if obeys_rules(cells)]


def obeys_rules(cells: str) -> bool:
    """Whether every row, column and box of a grid has each digit once."""
    return all({cells[cell] for cell in unit} == set(DIGITS) for unit in UNITS)


def written(cells: str) -> str:
    """A grid as text: four lines of four cells."""
    return "\n".join(" ".join(cells[first : first + 4]) for first in range(0, 16, 4))


def sudoku_is_right(response: str, answer: str) -> bool:
    """Whether the last 16 digits of a response are a solution of the puzzle.

    Args:
        response: a text.
        answer: the puzzle's cells, row by row.
    """
    # The last ones: a response may repeat the puzzle first.
    cells = "".join(re.findall(r"\d", response)[-16:])
    pairs = zip(answer, cells, strict=False)
    matches = all(clue in (EMPTY, cell) for clue, cell in pairs)
    return matches and len(cells) == 16 and obeys_rules(cells)


def draw_countdown(rng: Random) -> Problem:
    """Draw three numbers, a target, and an expression of the numbers that has its value."""
    numbers = rng.choices(range(1, 10), k=3)
    first, second, third = rng.sample(numbers, 3)
    expression = f"({first} {rng.choice('+-*')} {second}) {rng.choice('+-*')} {third}"
    target = eval(expression)
    # Only positive targets: others are drawn again.
    if target < 1:
        return draw_countdown(rng)
    question = f"Use each of {numbers} once, with + - * / and brackets, to make {target}."
    row = {"prompt": question, "answer": json.dumps([target, *numbers])}
    key = f"countdown {sorted(numbers)} {target}"
    return Problem(key, question, f"{expression} = {target}", row)


def countdown_is_right(response: str, answer: str) -> bool:
    """Whether the last line of a response is an expression that uses each number once and has the
    target as its value. Text from an equals sign on is ignored.

    Args:
        response: a text.
        answer: JSON, the target and then the numbers.
    """
    target, *numbers = json.loads(answer)
    # A right expression of three numbers is shorter than 100 characters. A longer text might be
    # nested too deeply for the parser.
    line = response.strip().rpartition("\n")[2].partition("=")[0].strip()
    try:
        expression = ast.parse(line[:100], mode="eval").body
        reached = value_of(expression)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return False
    used = Counter(node.value for node in ast.walk(expression) if isinstance(node, ast.Constant))
    return used == Counter(numbers) and reached == target


def value_of(node: ast.expr) -> Fraction:
    """The exact value of an expression of whole numbers, + - * / and brackets.

    Raises:
        ValueError: anything else.
        ZeroDivisionError: a division by zero.
    """
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Fraction(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        calculate = OPERATIONS[type(node.op)]
        return calculate(value_of(node.left), value_of(node.right))
    raise ValueError("an expression has whole numbers, + - * / and brackets alone")


PLANNING = (
    judged_suite("sudoku", "Sudoku", draw_sudoku, sudoku_is_right),
    judged_suite("countdown", "Countdown", draw_countdown, countdown_is_right),
)
