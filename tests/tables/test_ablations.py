"""Which tables a run has: the main one without rows that belong to an ablation alone, and the ablations it has."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
from run_records import rows_of, save, save_presets

from harness.measures.table import MEASURES
from harness.measures.together import put_together
from harness.methods.groups import GROUPS
from harness.methods.presets import PRESETS
from harness.methods.selection import methods_named
from harness.records.store import Run
from tables.render import render

ABLATIONS = ("training", "speculation", "draft", "window-size")


def run_of(folder: Path, *methods: str) -> dict[str, str]:
    return render(save_presets(folder, *methods))


def in_csv(text: str) -> list[str]:
    """The methods of a CSV file, each once, in its order."""
    frame = pd.read_csv(io.StringIO(text))
    assert list(frame.columns) == MEASURES and len(frame) == 2 * frame["method"].nunique()
    return frame["method"].drop_duplicates().to_list()


def test_groups_have_methods_as_the_records_name_them() -> None:
    for name, methods in GROUPS.items():
        assert list(methods_named(name)) == methods


def test_a_run_of_the_main_methods_has_no_ablation(tmp_path: Path) -> None:
    files = run_of(tmp_path, *GROUPS["main"])
    assert {name.split(".")[0] for name in files} == {"main", "windows", "theory"}


def test_there_is_no_main_table_if_the_ablations_show_all_of_it(tmp_path: Path) -> None:
    ablations = dict.fromkeys(method for name in ABLATIONS for method in GROUPS[name])
    files = run_of(tmp_path / "all", *ablations)
    assert not {"main.tex", "main.md"} & set(files) and {f"{name}.tex" for name in ABLATIONS} <= set(files)
    without_training = run_of(tmp_path / "draft", *GROUPS["draft"])
    assert "LLaDA" in rows_of(without_training["main.md"])


def test_a_method_whose_ablation_is_not_there_is_in_the_main_table(tmp_path: Path) -> None:
    files = run_of(tmp_path, "llada", "llada-trained")
    assert in_csv(files["main.csv"]) == ["llada", "llada-trained"] and "training.csv" not in files


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


def test_the_caption_names_responses_that_speculation_changed(tmp_path: Path) -> None:
    run = with_hashes(save_presets(tmp_path, *GROUPS["speculation"]), tmp_path / "hashed", math="other")
    caption = render(run)["speculation.md"]
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
