"""The closed form of a shuffle against enumeration, and the table on nano."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from harness.laws.lists import ROWS, distinct_probability, lists_section, plot_lists
from model_wrappers import load_backbone


def enumerated(counts: list[int], left: frozenset[int]) -> float:
    """Probability of drawing different items, over every independent draw of counts[0] from those left, and so on."""
    if not counts:
        return 1.0
    draws = list(itertools.product(sorted(left), repeat=counts[0]))
    different = [draw for draw in draws if len(set(draw)) == counts[0]]
    return sum(enumerated(counts[1:], left - set(draw)) for draw in different) / len(draws)


@pytest.mark.parametrize("counts", [[1, 1, 1], [3], [2, 2], [2, 2, 1], [4], [3, 2]])
def test_the_closed_form_is_the_share_of_draws_that_are_all_different(counts: list[int]) -> None:
    assert distinct_probability(counts) == pytest.approx(enumerated(counts, frozenset(range(sum(counts)))))


def test_every_method_is_measured_on_the_same_shuffles(tmp_path: Path) -> None:
    table = lists_section(load_backbone("nano"), count=2)
    assert table["method"].tolist() == [row.label for row in ROWS]
    by_name = table.set_index("method").to_dict("index")
    one, three = (by_name[f"LLaDA, {n} a step, random"] for n in (1, 3))
    assert one["closed form, %"] == 100 and one["separators given, forwards"] > three["separators given, forwards"]
    assert 2 * by_name["DDOSP"]["whole response, forwards"] == by_name["LLaDA"]["whole response, forwards"]
    plot_lists(table, tmp_path / "lists.png")
    assert (tmp_path / "lists.png").stat().st_size > 0
