"""The paper's numbers: that they are its own, under our labels, and what stands beside a run."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pandas as pd
import pytest
from run_records import PAPER_SUITES, full_items, item, rows_of, save, save_presets

from harness.methods.groups import GROUPS
from harness.methods.presets import PRESETS
from harness.methods.published import PAPER_TABLES
from harness.methods.selection import methods_named
from tables.render import render
from tables.sheets.paper import NAMED_OTHERWISE, TIDY, paper_numbers

PAPER = json.loads(PAPER_TABLES.read_text(encoding="utf-8"))
ABLATIONS = [method for name in ("training", "speculation", "draft", "window-size") for method in GROUPS[name]]


def beside(folder: Path, *methods: str) -> dict[str, str]:
    """The files of a run of presets on the paper's suites, the paper beside."""
    return render(save_presets(folder, *dict.fromkeys(methods), suites=tuple(PAPER_SUITES)), paper=True)


def test_paper_stands_beside_the_measured_numbers(tmp_path: Path) -> None:
    suites = {**PAPER_SUITES, "lists": "Lists"}
    items = full_items(suites) + [item("dcd", "lists", n) for n in range(4)]
    files = render(save(tmp_path, items, suites=suites), paper=True)
    rows = rows_of(files["paper.md"])
    assert rows["FeF-DLLM (step=2), paper"][:4] == ["**79.38**", "<ins>3.55x</ins>", "**36.40**", "<ins>3.25x</ins>"]
    assert rows["FeF-DLLM (step=2), paper"][-2:] == ["**51.79**", "<ins>3.86x</ins>"]
    assert rows["FeF-DLLM (step=2), measured"] == ["**100.00**", "<ins>4.00x</ins>"] * 5
    assert rows["LLaDA, measured"] == ["75.00", "1.00x"] * 5
    assert "DCD" not in files["paper.md"] and "Lists" not in files["paper.md"]
    assert rows["LLaDA, paper"][6] == "34.20 [a]"
    csv = files["paper.csv"].splitlines()
    assert csv[0] == ",".join(TIDY) and csv[2] == "llada,LLaDA,math,26.6,75.0,1.0,1.0,,"


def test_the_caption_tells_what_is_odd_in_the_papers_rows_that_are_shown(tmp_path: Path) -> None:
    accuracy = {row["method"]: row["acc"] for row in PAPER["main_results"]}
    assert accuracy["LLaDA"][1] == 26.6 and all(
        ssd != llada for ssd, llada in zip(accuracy["SSD"], accuracy["LLaDA"], strict=True)
    )
    both = ["In the paper SSD does not have LLaDA's accuracy", "The paper's LLaDA has 26.60 on MATH"]
    shown = {("llada", "ssd"): both, ("llada", "fef-2"): both[1:], ("ssd", "fef-2"): both[:1]}
    for methods, told in shown.items():
        caption = beside(tmp_path / "-".join(methods), *methods)["paper.md"].splitlines()[0]
        assert [sentence for sentence in both if sentence in caption] == told


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


def test_every_row_of_the_ablations_stands_beside_the_papers_once(tmp_path: Path) -> None:
    lines = beside(tmp_path, *ABLATIONS)["paper.md"].splitlines()
    labels = [line.strip("|").split(" | ")[0].strip() for line in lines if line.startswith("|")][2:]
    unknown = {
        "fef-4(window=2)",
        "fef-4(window=24)",
        "fef-4(window=32)",
        "llada-control",
    }  # the control is never beside a paper number
    expected = [METHODS[method].label for method in dict.fromkeys(ABLATIONS) if method not in unknown]
    assert labels == [f"{label}, {source}" for label in expected for source in ("paper", "measured")]


def test_acceptance_stands_beside_the_papers_in_percent(tmp_path: Path) -> None:
    files = beside(tmp_path, *ABLATIONS)
    rows, label = rows_of(files["paper.md"]), PRESETS["fef-4-untrained-draft"].label
    assert rows["Method"][:3] == ["GSM8K Acc.", "GSM8K Speed", "GSM8K Acceptance"]
    assert (rows[f"{label}, paper"][2], rows[f"{label}, measured"][2]) == ("62.55", "60.00")
    assert rows["LLaDA, paper"][2] == rows["LLaDA, measured"][2] == "-"


def test_acceptance_is_no_column_where_the_paper_has_none(tmp_path: Path) -> None:
    assert "Acceptance" not in beside(tmp_path, "llada", "fef-2", "fef-2-nosd")["paper.md"]


def test_a_mean_the_paper_does_not_print_is_a_dash(tmp_path: Path) -> None:
    rows, label = rows_of(beside(tmp_path, *ABLATIONS)["paper.md"]), PRESETS["fef-4-untrained-draft"].label
    assert rows[f"{label}, paper"][-3:] == ["-", "-", "-"] and rows[f"{label}, measured"][-1] == "60.00"


def test_csv_has_the_papers_number_left_of_the_measured_one(tmp_path: Path) -> None:
    frame = pd.read_csv(io.StringIO(beside(tmp_path, *ABLATIONS)["paper.csv"]))
    row = frame[(frame["method"] == "fef-4(window=8)") & (frame["suite"] == "math")].to_dict("records")[0]
    assert list(row) == TIDY and list(row.values())[3:7] == [36.56, 100.0, 1.34, 1.0]
    assert pd.isna(row["paper_acceptance_percent"]) and row["acceptance_percent"] == 60.0


def test_a_run_the_paper_has_nothing_of_has_no_such_table(tmp_path: Path) -> None:
    lists = save_presets(tmp_path / "lists", "llada", "fef-4", suites=("lists",))
    own = save_presets(tmp_path / "own", "threshold", "fef-1")
    for run in (lists, own):
        assert render(run, paper=True) == render(run)
