"""Which tables a run has: the main one without rows that belong to an ablation alone, and the ablations it has."""

from __future__ import annotations

from pathlib import Path

from run_records import item, rows_of, save

from harness.groups import GROUPS
from harness.presets import PRESETS
from tables.render import render


def run_of(folder: Path, *methods: str) -> dict[str, str]:
    drafts = {"proposed": 10, "accepted": 6, "rejected": 2}
    items = [
        item(method, suite, number, **(drafts if method.startswith("fef") else {}))
        for method in methods
        for suite in ("gsm8k", "math")
        for number in range(2)
    ]
    labels = {method: {"label": PRESETS[method].label, "method": PRESETS[method].method} for method in methods}
    suites = {key: {"title": key} for key in ("gsm8k", "math")}
    return render(save(folder, items, config={"data": "generated", "methods": labels, "suites": suites}))


def test_groups_name_presets() -> None:
    assert all(method in PRESETS for methods in GROUPS.values() for method in methods)


def test_every_ablation_has_its_rows_in_order_and_the_main_table_has_none_of_theirs(tmp_path: Path) -> None:
    files = run_of(tmp_path, *reversed(PRESETS))
    for name in ("training", "speculation", "draft", "window-size"):
        expected = [PRESETS[method].label for method in GROUPS[name]]
        rows = list(rows_of(files[f"{name}.md"]))[2:]
        assert rows == (expected if name == "training" else expected[1:])
        assert rf"\label{{tab:{name}}}" in files[f"{name}.tex"]
    main = list(rows_of(files["main.md"]))[2:]
    assert "FeF-DLLM (step=2)" in main and "Threshold" in main
    assert not any("w/o" in label or "window" in label or "w/ train" in label for label in main)


def test_the_draft_table_shows_acceptance_in_percent(tmp_path: Path) -> None:
    rows = rows_of(run_of(tmp_path, *GROUPS["draft"])["draft.md"])
    assert rows["Method"][2] == "gsm8k Acceptance" and rows["FeF-DLLM (step=4)"][2] == "60.00"


def test_a_run_of_the_main_methods_has_no_ablation(tmp_path: Path) -> None:
    files = run_of(tmp_path, *GROUPS["main"])
    assert set(files) == {"main.md", "main.tex", "main.csv", "windows.md", "windows.csv"}
