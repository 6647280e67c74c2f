"""The summary of a run in Python: the numbers of its tables."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from run_records import full_items, item, save

from harness.measures.intervals import paired, with_intervals
from harness.measures.summary import SUMMARY, WINDOWS, evaluated, summarise
from harness.measures.table import measure


def test_the_numbers_are_those_of_the_tables(tmp_path: Path) -> None:
    items = [row | {"seconds": 0.1 + 0.017 * number**1.3} for number, row in enumerate(full_items())]
    run = save(tmp_path, [*items, item("dcd", "gsm8k", 0, correct=None)])
    ours, tables = summarise(run), with_intervals(measure(run), paired(run))
    assert list(ours.columns)[: len(SUMMARY)] == SUMMARY
    both = ours.merge(tables, on=["method", "suite"], suffixes=("", "_table"))
    assert len(both) == len(ours) == len(tables)
    names = ["items", "scored", "accuracy", "accuracy_low", "accuracy_high", "speedup", "speedup_low", "speedup_high"]
    for name in names:
        pd.testing.assert_series_equal(both[name], both[f"{name}_table"], check_names=False, check_dtype=False)
    assert set(ours["checkpoint"]) == {"-"} and ours["forward_speedup"].notna().any()
    pd.testing.assert_series_equal(both["seconds"], both["seconds_per_item"], check_names=False)
    assert ours.set_index(["method", "suite"]).loc[("fef-2", "gsm8k"), ["label", "forwards"]].tolist() == [
        "FeF-DLLM (step=2)",
        24.0,
    ]


def test_a_run_without_llada_or_clocks_has_no_speedup(tmp_path: Path) -> None:
    alone = summarise(save(tmp_path / "alone", [item("dcd", "gsm8k", 0)]))
    assert alone["speedup"].isna().all() and alone["seconds"].tolist() == [2.0]
    config = {"data": "generated", "methods": {"llada": {"label": "LLaDA"}}, "suites": {"gsm8k": {"title": "GSM8K"}}}
    untimed = save(tmp_path / "untimed", [item("llada", "gsm8k", 0)], config={**config, "timed": False})
    assert summarise(untimed)[["seconds", "speedup", "speedup_low", "speedup_high"]].isna().all(axis=None)
    assert summarise(save(tmp_path / "empty", [])).empty
    assert list(evaluated(untimed).windows) == WINDOWS


def test_options_are_columns_and_means_are_of_methods_that_have_all_suites(tmp_path: Path) -> None:
    methods = {
        "llada": {"suites": {"gsm8k": {"gen_length": 48, "options": {"steps": 48}}, "math": {"gen_length": 40}}},
        "mine(tau=0.5)": {"suites": {"gsm8k": {"gen_length": 48, "block_length": 16, "options": {"tau": 0.5}}}},
    }
    suites = {"gsm8k": {"title": "GSM8K"}, "math": {"title": "MATH"}}
    items = [item("llada", suite, 0, seconds=2.0 + (suite == "math")) for suite in suites]
    items.append(item("mine(tau=0.5)", "gsm8k", 0))
    run = evaluated(save(tmp_path, items, config={"data": "generated", "methods": methods, "suites": suites}))
    summary = run.summary.set_index(["method", "suite"])
    assert summary.loc[("mine(tau=0.5)", "gsm8k"), ["tau", "gen_length", "block_length"]].tolist() == [0.5, 48, 16]
    assert summary["steps"].isna().tolist() == [False, True, True] and list(run.traces()) == []
    assert run.means["method"].tolist() == ["llada"] and run.means["seconds"].tolist() == [2.5]
