"""Runs of several seeds: every problem once for each, and statistics that know that these are
alike."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rendering import render
from run_records import rows_of, seeded

from harness import evaluate
from harness.errors import UserError
from harness.measures.intervals import paired, with_intervals
from harness.measures.table import measure
from harness.stats import effective_trials, wilson


def test_values_of_alike_clusters_are_worth_as_many_as_there_are_clusters() -> None:
    once = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0])
    assert effective_trials(np.tile(once, 3), np.tile(np.arange(8.0), 3)) == 8
    assert effective_trials(np.ones(24), np.tile(np.arange(8.0), 3)) == 8


def test_values_that_clusters_do_not_share_are_worth_themselves() -> None:
    draws = np.random.default_rng(0)
    values, clusters = (draws.random(3000) < 0.7).astype(float), np.tile(np.arange(1000.0), 3)
    found = effective_trials(values, clusters)
    # The ratio of the two variances has a relative standard deviation of about sqrt(2 / 1000).
    assert 3000 * (1 - 4 * (2 / 1000) ** 0.5) < found <= 3000


def test_tables_have_the_mean_and_the_spread_over_seeds(tmp_path: Path) -> None:
    run = seeded(tmp_path, {"llada": [[1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]]})
    markdown = render(run)["main.md"]
    assert rows_of(markdown)["llada"][0] == "**50.00 ± 25.00**"
    assert "- seeds: 3, 5, 7\n" in markdown
    assert r"50.00 $\pm$ 25.00" in render(run)["main.tex"]


@pytest.mark.parametrize(
    ("items", "cell", "problems"),
    [(12, "50.00 ± 25.00", 4), (11, "54.55", 4), (5, "60.00", 4), (3, "66.67", 3)],
)
def test_seeds_that_are_not_all_there_yet_have_no_spread_and_are_fewer(
    tmp_path: Path, items: int, cell: str, problems: int
) -> None:
    run = seeded(tmp_path, {"llada": [[1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]]})
    markdown = render(replace(run, items=run.items.head(items)))["main.md"]
    assert rows_of(markdown)["llada"][0] == f"**{cell}**" and markdown.startswith("Accuracy")
    assert f"- problems a suite: {problems}\n" in markdown
    assert (f"- responses: {items} of {3 * problems}\n" in markdown) == (items < 3 * problems)


def test_seeds_that_agree_make_no_interval_narrower(tmp_path: Path) -> None:
    first, other = [1, 1, 1, 0, 0, 0, 1, 0], [1, 0, 1, 1, 0, 1, 1, 0]
    run = seeded(tmp_path, {"llada": [first] * 3, "mine": [other] * 3})
    pairs = paired(run)
    row = with_intervals(measure(run), pairs).iloc[1]
    assert (row["accuracy_low"], row["accuracy_high"]) == pytest.approx(
        tuple(100 * np.array(wilson(5 / 8, 8)))
    )
    own = pairs["mine", "gsm8k"]
    assert (own.judged, own.lost, own.gained) == (24, 3, 6) and own.worth == pytest.approx(1 / 3)
    assert row["p_value"] == 1.0  # of 1 lost and 2 gained
    assert own.seconds.tolist() == [[3.0 + 3 * problem] * 2 for problem in range(8)]


def tokens_of(items: pd.DataFrame, first: int, count: int) -> list[str]:
    return (
        items[items["item"].between(first, first + count - 1)]
        .sort_values("item")["tokens_hash"]
        .to_list()
    )


@pytest.mark.slow
def test_a_run_of_two_seeds_has_the_tokens_of_a_run_of_each(tmp_path: Path) -> None:
    how = {
        "methods": "llada",
        "suites": "gsm8k,humaneval",
        "limit": 2,
        "temperature": 0.7,
        "threads": 1,
        "quiet": True,
    }
    both = evaluate(**how, seed="4,9", out=tmp_path / "both")
    single = [evaluate(**how, seed=seed, out=tmp_path / str(seed)) for seed in (4, 9)]
    for suite in ("gsm8k", "humaneval"):
        items = both.items[both.items["suite"] == suite]
        assert len(items) == 4 and items["correct"].notna().all()
        for draw, own in enumerate(single):
            own_items = own.items[own.items["suite"] == suite]
            assert tokens_of(items, 2 * draw, 2) == tokens_of(own_items, 0, 2)
    means = np.mean([own.summary["accuracy"] for own in single], axis=0)
    assert both.summary["accuracy"].to_list() == pytest.approx(means)


@pytest.mark.parametrize(
    ("seed", "temperature", "says"),
    [
        ("0,-1", 0.5, "--seed 0,-1 must be whole numbers of at least 0"),
        ((1, 1), 0.5, "--seed 1,1 names a seed twice"),
        ("one", 0.5, "--seed one must be whole numbers of at least 0, as 0,1,2"),
        ("1_0", 0.5, "--seed 1_0 must be whole numbers"),
    ],
)
def test_seeds_that_make_no_sense_are_refused(seed: object, temperature: float, says: str) -> None:
    with pytest.raises(UserError, match=says):
        evaluate("llada", "gsm8k", limit=1, seed=seed, temperature=temperature)
