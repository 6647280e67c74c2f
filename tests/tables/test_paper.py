"""The paper's numbers: that they are its own, under our labels, and what stands beside a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_records import PAPER_SUITES, full_items, item, rows_of, save, save_presets

from harness.methods.groups import GROUPS
from harness.methods.published import PAPER_TABLES
from harness.methods.selection import methods_named
from tables.render import render
from tables.sheets.paper import NAMED_OTHERWISE, paper_numbers

PAPER = json.loads(PAPER_TABLES.read_text(encoding="utf-8"))
ABLATIONS = [method for name in ("training", "speculation", "draft", "window-size") for method in GROUPS[name]]


def test_paper_stands_beside_the_measured_numbers(tmp_path: Path) -> None:
    suites = {**PAPER_SUITES, "lists": "Lists"}
    items = full_items(suites) + [item("dcd", "lists", n) for n in range(4)]
    files = render(save(tmp_path, items, suites=suites), paper=True)
    rows = rows_of(files["paper.md"])
    assert rows["FeF-DLLM (step=2), paper"][:2] == ["**79.38**", "<ins>3.55x</ins>"]
    assert rows["FeF-DLLM (step=2), measured"] == ["**100.00**", "<ins>4.00x</ins>"] * 5
    assert "DCD" not in files["paper.md"] and "Lists" not in files["paper.md"]


def test_paper_means_need_the_four_suites(tmp_path: Path) -> None:
    assert "Mean" not in render(save(tmp_path, full_items()), paper=True)["paper.md"]


def test_paper_numbers_are_the_papers() -> None:
    numbers = [tuple(row) for row in paper_numbers().to_numpy().tolist()]
    assert len({row[:2] for row in numbers}) == len(numbers) == 15 * 5
    found = {row[:4] for row in numbers}
    assert ("DCD", "humaneval", 50.0, 0.43) in found and ("LLaDA w/ train", "mean", 46.28, 1.0) in found
    assert ("FeF-DLLM w/o SD (step=4)", "mbpp", 42.6, 0.4) in found
    assert ("FeF-DLLM (step=4, window=8)", "mean", 52.06, 1.42) in found
    assert ("FeF-DLLM (step=4)", "gsm8k", 79.68, 2.14, 63.29) in numbers
    assert ("FeF-DLLM, draft w/o train (step=4)", "mbpp", 42.6, 2.89, 91.77) in numbers


METHODS = methods_named(",".join({"main": 0, **dict.fromkeys(ABLATIONS)}))


def test_every_label_of_the_paper_is_that_of_a_method() -> None:
    assert set(paper_numbers()["label"]) <= {preset.label for preset in METHODS.values()}


def test_rows_named_by_window_size_are_the_methods_of_that_size() -> None:
    sizes = {preset.label: preset.asked.get("window", 16) for preset in METHODS.values()}
    named = NAMED_OTHERWISE["ablation_window_size"]
    assert {str(sizes[label]): label for label in named.values()} == named


@pytest.mark.parametrize("section", NAMED_OTHERWISE)
def test_no_row_of_the_tables_named_otherwise_is_left_out(section: str) -> None:
    assert [name for name, row in PAPER[section].items() if isinstance(row, dict)] == list(NAMED_OTHERWISE[section])


def test_tables_of_the_paper_that_share_a_row_agree() -> None:
    once = paper_numbers().set_index(["label", "suite"])
    sections = ("main_results", "ablation_training", "ablation_speculative")
    rows = [(row["method"], row) for section in sections for row in PAPER[section]]
    rows += [
        (label, PAPER[section][name]) for section, named in NAMED_OTHERWISE.items() for name, label in named.items()
    ]
    for label, row in rows:
        own = once.loc[label].loc[PAPER["suites"]]
        assert own["paper_accuracy"].to_list() == row["acc"] and own["paper_speedup"].to_list() == row["speed"]


def test_a_run_the_paper_has_nothing_of_has_no_such_table(tmp_path: Path) -> None:
    lists = save_presets(tmp_path / "lists", "llada", "fef-4", suites=("lists",))
    own = save_presets(tmp_path / "own", "threshold", "fef-1")
    for run in (lists, own):
        assert render(run, paper=True) == render(run)
