"""The paper's numbers: that they are its own, under our labels, and what stands beside a run."""

from __future__ import annotations

from pathlib import Path

from run_records import PAPER_SUITES, full_items, item, rows_of, save

from harness.methods.groups import GROUPS
from harness.methods.selection import methods_named
from tables.render import render
from tables.sheets.paper import paper_numbers

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
