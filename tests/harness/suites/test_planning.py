"""Sudoku and countdown: judged by their rules, whatever the wording of a right response."""

import json

import pytest

from harness.suites.planning import countdown_is_right, grids, sudoku_is_right
from harness.suites.registry import problems

PUZZLE = "1000" + "0000" + "0100" + "0000"
SOLVED = "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1"


@pytest.mark.parametrize(
    ("response", "right"),
    [
        (SOLVED, True),
        ("1 2 4 3\n4 3 1 2\n2 1 3 4\n3 4 2 1", True),  # another completion
        (f"For 4 rows of 4 cells:\n{SOLVED}", True),
        (SOLVED.replace(" ", "").replace("\n", ""), True),
        ("2 1 3 4\n3 4 1 2\n1 2 4 3\n4 3 2 1", False),  # the given 1 is gone
        ("1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 1 2", False),  # a column has two ones
        ("1 2 3 4\n2 3 4 1\n3 1 2 4\n4 3 1 2", False),  # a box has two twos
        ("1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2", False),
        (SOLVED.replace("4", "0"), False),
        ("", False),
    ],
)
def test_a_sudoku_is_right_by_its_rules(response: str, right: bool) -> None:
    assert sudoku_is_right(response, PUZZLE) is right


def test_there_are_288_grids() -> None:
    assert len(set(grids())) == 288


@pytest.mark.parametrize(
    ("response", "right"),
    [
        ("(3 + 5) * 2 = 16", True),
        ("2*(5+3)", True),
        ("First 3 + 5 = 8.\n2 * (3 + 5) = 16", True),
        ("3 + 5 + 2 = 16", False),
        ("(3 + 5) * 2 * 1", False),
        ("8 * 2 = 16", False),
        ("3 + 5 + 2 + 3 + 3", False),
        ("(3 + 5) * 2 = 16 =", True),
        ("2 ** (5 - 1) + 3 * 0", False),
        ("__import__('os').getpid()", False),
        ("3 / (5 - 5)", False),
        ("16", False),
        ("(3 + 5) * 2.0", False),
        ("9" * 10**6, False),
        ("(" * 10**5, False),
        ("", False),
    ],
)
def test_a_countdown_is_right_by_its_value_and_numbers(response: str, right: bool) -> None:
    assert countdown_is_right(response, json.dumps([16, 3, 5, 2])) is right


def test_a_countdown_is_reckoned_exactly() -> None:
    """In floating point it is 23.99..."""
    assert countdown_is_right("8 / (3 - 8 / 3)", json.dumps([24, 3, 3, 8, 8]))
    assert not countdown_is_right("8 / (3 - 8 / 3)", json.dumps([24, 3, 3, 3, 8]))


def test_generated_puzzles_have_empty_cells_and_reachable_targets() -> None:
    for problem in problems("sudoku", "dev", 50):
        assert 4 <= problem.row["answer"].count("0") <= 10
    for problem in problems("countdown", "dev", 50):
        assert json.loads(problem.row["answer"])[0] > 0
