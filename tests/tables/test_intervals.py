"""Intervals and p-values under the rows of a table: what they say, where they are empty, what is
there without."""

import io
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rendering import render
from run_records import item, save, save_presets
from scipy import stats

from harness.measures.intervals import UNCERTAINTY, means, paired
from harness.measures.marks import with_marks
from harness.measures.table import MEASURES, measure
from harness.methods.presets import GROUPS
from harness.stats import holm, mcnemar, speedup_interval, wilson

SUITE = {"gsm8k": "GSM8K"}


def noisy_items(suite: str = "gsm8k", count: int = 20) -> list[dict[str, Any]]:
    """LLaDA right on all but the last 2; DCD loses 8 of these and gains 1; LLaDA/2 has LLaDA's
    verdicts."""
    rows = []
    for number in range(count):
        right = number < count - 2
        rows.append(item("llada", suite, number, correct=right, seconds=2 + number / 10))
        rows.append(item("llada/2", suite, number, correct=right, seconds=1 + number % 3 / 10))
        rows.append(
            item("dcd", suite, number, correct=8 <= number < count - 1, seconds=4 + number % 5 / 10)
        )
    return rows


def cells_of(markdown: str) -> list[list[str]]:
    """Every row of a Markdown table, labels first."""
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines][2:]


def csv_of(files: dict[str, str], name: str = "main") -> pd.DataFrame:
    return pd.read_csv(io.StringIO(files[f"{name}.csv"])).set_index(["method", "suite"])


def test_every_row_has_its_intervals_and_all_but_llada_a_p_value_below(tmp_path: Path) -> None:
    files = render(save(tmp_path, noisy_items(), suites=SUITE), intervals=True)
    rows = cells_of(files["main.md"])
    below = ["95% interval", "p vs LLaDA (Holm)"]
    assert [row[0] for row in rows] == ["LLaDA", below[0], "LLaDA/2", *below, "DCD", *below]
    low, high = (100 * end for end in wilson(0.9, 20))
    assert rows[1][1:] == [f"{low:.1f} to {high:.1f}", "", ""]
    seconds = paired(save(tmp_path, noisy_items(), suites=SUITE))["dcd", "gsm8k"].seconds
    slow, fast = speedup_interval([seconds])
    assert rows[6][2:] == [f"{slow:.2f} to {fast:.2f}", ""]
    assert rows[4][1:] == ["1.000", "", ""] and rows[7][1:] == [f"{2 * mcnemar(8, 1):.3f}", "", ""]
    assert "*" not in "".join(cell for row in rows for cell in row[1:] if row[0] in below)


def test_p_values_are_adjusted_over_all_cells_of_the_table_and_the_card_counts_them(
    tmp_path: Path,
) -> None:
    items = [*noisy_items("gsm8k"), *noisy_items("math", 30)]
    files = render(save(tmp_path, items), intervals=True)
    assert "- comparisons that p is adjusted for: 4\n" in files["main.md"]
    frame = csv_of(files)
    tested = frame["p_value"].dropna()
    of = {"llada/2": 1.0, "dcd": stats.binomtest(1, 9).pvalue}
    assert tested.to_dict() == pytest.approx(
        {(name, suite): of[name] for name in of for suite in ("gsm8k", "math")}
    )
    assert frame.loc[tested.index, "p_holm"].to_list() == pytest.approx(
        holm(tested.to_list()).tolist()
    )
    assert (
        frame.loc["llada", "p_value"].isna().all()
        and frame.loc["llada", "speedup_low"].isna().all()
    )


def test_p_values_are_of_shared_items_that_both_have_a_verdict_of(tmp_path: Path) -> None:
    items = [item("llada", "gsm8k", number, correct=number < 6) for number in range(8)]
    verdicts = [True, False, False, None, True, True, True, True]
    items += [
        item("dcd", "gsm8k", number + 1, correct=verdict) for number, verdict in enumerate(verdicts)
    ]
    own = paired(save(tmp_path, items, suites=SUITE))["dcd", "gsm8k"]
    # Items 1 to 7 are shared and 4 has no verdict; 2 and 3 are lost, 6 and 7 gained.
    assert (own.judged, own.lost, own.gained, own.seconds.shape) == (6, 2, 2, (7, 2))


def test_the_mean_has_intervals_and_no_p_value(tmp_path: Path) -> None:
    run = save(tmp_path, [*noisy_items("gsm8k"), *noisy_items("math")])
    rows = cells_of(render(run, intervals=True)["main.md"])
    pooled = [100 * end for end in wilson(0.9, 40)]
    assert rows[1][7] == f"{pooled[0]:.1f} to {pooled[1]:.1f}"
    seconds = [paired(run)["dcd", suite].seconds for suite in ("gsm8k", "math")]
    low, high = speedup_interval(seconds)
    assert rows[6][8] == f"{low:.2f} to {high:.2f}" and rows[7][7:] == ["", "", ""]


def test_a_tiny_p_value_is_said_to_be_below_what_is_printed(tmp_path: Path) -> None:
    items = [item("llada", "gsm8k", n) for n in range(40)]
    items += [item("dcd", "gsm8k", n, correct=False) for n in range(40)]
    files = render(save(tmp_path, items, suites=SUITE), intervals=True)
    assert cells_of(files["main.md"])[-1][1] == r"\<0.001"
    assert csv_of(files).loc[("dcd", "gsm8k"), "p_holm"] == pytest.approx(2 / 2**40)


def test_csv_has_the_ends_in_percent_and_the_other_columns_as_without(tmp_path: Path) -> None:
    run = save(tmp_path, noisy_items(), suites=SUITE)
    with_ends, without = (
        csv_of(render(run, intervals=wanted)).reset_index() for wanted in (True, False)
    )
    assert list(with_ends) == [*MEASURES, *UNCERTAINTY] and list(without) == MEASURES
    pd.testing.assert_frame_equal(with_ends[MEASURES], without)
    row = with_ends.iloc[-1]
    assert row["accuracy_low"] < row["accuracy"] < row["accuracy_high"] <= 100
    assert row["speedup_low"] < row["speedup"] < row["speedup_high"]


def test_every_ablation_adjusts_for_its_own_rows(tmp_path: Path) -> None:
    methods = dict.fromkeys(method for name in ("draft", "window-size") for method in GROUPS[name])
    files = render(save_presets(tmp_path, *methods), intervals=True)
    for name, compared in (("draft", 2), ("window-size", 6)):
        assert f"p is adjusted for: {2 * compared}\n" in files[f"{name}.md"]
        assert (
            len([row for row in cells_of(files[f"{name}.md"]) if row[0].startswith("p vs")])
            == compared
        )


def test_the_mean_of_unequal_suites_has_the_interval_of_its_variance(tmp_path: Path) -> None:
    """Ten problems and ninety weigh alike: the mean is as sure as one of 4 / (1 / 10 + 1 / 90) = 36
    problems."""
    rows = [
        item(method, suite, n, correct=n < count / 2, seconds=seconds + n % 3)
        for suite, count in (("gsm8k", 10), ("math", 90))
        for method, seconds in (("llada", 4.0), ("dcd", 2.0))
        for n in range(count)
    ]
    run = save(tmp_path, rows)
    pairs = paired(run)
    (row,) = (
        means(with_marks(measure(run), run), ["gsm8k", "math"], pairs)
        .query("method == 'dcd'")
        .to_dict("records")
    )
    low, high = wilson(0.5, 36)
    assert (row["accuracy_low"], row["accuracy_high"]) == pytest.approx((100 * low, 100 * high))
    slow, fast = speedup_interval([pairs["dcd", suite].seconds for suite in ("gsm8k", "math")])
    assert (row["speedup_low"], row["speedup_high"]) == (slow, fast)
    assert slow > speedup_interval([pairs["dcd", "gsm8k"].seconds])[0]
