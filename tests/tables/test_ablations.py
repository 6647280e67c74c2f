"""Which tables a run has: the main one without rows that belong to an ablation alone, and the ablations it has."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest
from run_records import rows_of, save, save_presets

from harness.measures.table import MEASURES
from harness.measures.together import put_together
from harness.methods.groups import GROUPS
from harness.methods.presets import PRESETS
from harness.methods.selection import methods_named
from harness.records.store import Run
from tables.render import render
from tables.sheets.ablations import ONLY_ABLATION

ABLATIONS = ("training", "speculation", "draft", "window-size")


def run_of(folder: Path, *methods: str) -> dict[str, str]:
    return render(save_presets(folder, *methods))


def in_csv(text: str) -> list[str]:
    """The methods of a CSV file, each once, in its order."""
    frame = pd.read_csv(io.StringIO(text))
    assert list(frame.columns) == MEASURES and len(frame) == 2 * frame["method"].nunique()
    return frame["method"].drop_duplicates().to_list()


ALL = list(dict.fromkeys(method for methods in GROUPS.values() for method in methods))


def test_groups_have_methods_as_the_records_name_them() -> None:
    for name, methods in GROUPS.items():
        assert list(methods_named(name)) == methods


def test_every_ablation_has_its_rows_in_order_and_the_main_table_has_none_of_theirs(tmp_path: Path) -> None:
    files, presets = run_of(tmp_path, *reversed(ALL)), methods_named(",".join(ALL))
    for name in ABLATIONS:
        expected = [presets[method].label for method in GROUPS[name]]
        rows = list(rows_of(files[f"{name}.md"]))[2:]
        assert rows == (expected if name == "training" else expected[1:])
        assert rf"\label{{tab:{name}}}" in files[f"{name}.tex"]
    main = list(rows_of(files["main.md"]))[2:]
    assert "FeF-DLLM (step=2)" in main and "Threshold" in main
    assert not set(main) & {presets[method].label for method in ONLY_ABLATION}


def test_the_draft_table_shows_acceptance_in_percent(tmp_path: Path) -> None:
    rows = rows_of(run_of(tmp_path, *GROUPS["draft"])["draft.md"])
    assert rows["Method"][2] == "GSM8K Acceptance" and rows["FeF-DLLM (step=4)"][2] == "60.00"


def test_a_run_of_the_main_methods_has_no_ablation(tmp_path: Path) -> None:
    files = run_of(tmp_path, *GROUPS["main"])
    assert {name.split(".")[0] for name in files} == {"main", "windows", "theory"}


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablations_csv_has_the_rows_of_its_table(tmp_path: Path, name: str) -> None:
    shown = [method for method in GROUPS[name] if name == "training" or method != "llada"]
    assert in_csv(run_of(tmp_path, *reversed(ALL))[f"{name}.csv"]) == shown


def test_the_main_csv_has_no_row_of_an_ablation_alone(tmp_path: Path) -> None:
    assert in_csv(run_of(tmp_path, *GROUPS["main"], *GROUPS["training"][1:4])["main.csv"]) == GROUPS["main"]


def test_there_is_no_main_table_if_the_ablations_show_all_of_it(tmp_path: Path) -> None:
    ablations = dict.fromkeys(method for name in ABLATIONS for method in GROUPS[name])
    files = run_of(tmp_path / "all", *ablations)
    assert not {"main.tex", "main.md"} & set(files) and {f"{name}.tex" for name in ABLATIONS} <= set(files)
    without_training = run_of(tmp_path / "draft", *GROUPS["draft"])
    assert "LLaDA" in rows_of(without_training["main.md"])


def test_a_method_whose_ablation_is_not_there_is_in_the_main_table(tmp_path: Path) -> None:
    files = run_of(tmp_path, "llada", "llada-trained")
    assert in_csv(files["main.csv"]) == ["llada", "llada-trained"] and "training.csv" not in files


def speculation_run(folder: Path, **other: str) -> str:
    """The caption of a speculation table of two suites; `other` are hashes of FeF's own tokens, by suite."""
    return render(with_hashes(save_presets(folder, *GROUPS["speculation"]), folder / "hashed", **other))[
        "speculation.md"
    ]


def with_hashes(run: Run, folder: Path, **other: str) -> Run:
    """A run of presets with hashes of tokens, the same for all methods but fef-4 on the suites of `other`."""
    config = run.config.to_json()
    for name, method in config["methods"].items():
        options = {"steps": PRESETS[name].options.get("steps", 48)}
        method["suites"] = {suite: {"options": options} for suite in config["suites"]}
    items = [
        row | {"tokens_hash": other.get(row["suite"], "same") if row["method"] == "fef-4" else "same"}
        for row in run.items.dropna(axis=1).to_dict("records")
    ]
    return save(folder, items, config=config, name=folder.name)


def test_the_caption_says_that_speculation_changed_no_token(tmp_path: Path) -> None:
    assert "the same tokens on 8 of 8 responses." in speculation_run(tmp_path)


def test_the_caption_names_responses_that_speculation_changed(tmp_path: Path) -> None:
    caption = speculation_run(tmp_path, math="other")
    assert "on 6 of 8 responses, not on MATH 0 (step=4), MATH 1 (step=4)." in caption


def test_runs_together_that_form_an_ablation_have_its_table(tmp_path: Path) -> None:
    """The shown rows of both runs together are the speculation table, whose caption compares tokens."""
    first, second = (
        with_hashes(save_presets(tmp_path / name, "llada", *methods), tmp_path / f"{name}-hashed")
        for name, methods in (("one", ["fef-4-nosd"]), ("two", ["fef-4"]))
    )
    files = render(put_together([first, second]))
    assert in_csv(files["speculation.csv"]) == ["fef-4-nosd", "fef-4"]
    assert "the same tokens on 4 of 4 responses." in files["speculation.md"]
