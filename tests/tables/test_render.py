"""Tables from synthetic records: what they say, the paper's numbers beside a run's too."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
from rendering import render
from run_records import PAPER_SUITES, full_items, item, rows_of, save, window

from harness.measures.table import measure
from harness.methods.presets import GROUPS
from harness.runs.selection import methods_named
from tables.output import escape_latex, escape_markdown
from tables.pages.data import open_book
from tables.pages.overview import main_table, numbers_of_runs
from tables.sheets.against import paper_numbers

EVERYTHING: dict[str, Any] = {
    "paper": True,
    "intervals": True,
    "measures": True,
    "against": "llada",
}
ROW = {"method": "fef-2", "suite": "math", "drafts": 4, "draft": 0.1, "verification": 0.5}


def test_table_has_the_methods_that_were_run_in_config_order_and_their_means(
    tmp_path: Path,
) -> None:
    rows = rows_of(render(save(tmp_path, full_items()[::-1]))["main.md"])
    assert "Method" in rows and list(rows)[2:] == ["LLaDA", "FeF-DLLM (step=2)"]
    suite = ["75.00", "1.00x", "1.00x"]
    assert rows["LLaDA"] == suite * 3
    assert rows["FeF-DLLM (step=2)"] == ["**100.00**", "<ins>4.00x</ins>", "2.00x"] * 3
    assert (
        rows["Method"][:3] == ["GSM8K Acc.", "GSM8K Speed", "GSM8K Fwd."]
        and rows["Method"][-3] == "Mean Acc."
    )


def test_speedups_are_ratios_of_totals_over_shared_items(tmp_path: Path) -> None:
    costs = enumerate([(1.0, 10), (3.0, 30), (9, 9)])
    items = [item("llada", "gsm8k", n, seconds=s, forwards=f) for n, (s, f) in costs]
    items += [
        item("dcd", "gsm8k", 0, seconds=1.0, forwards=5),
        item("dcd", "gsm8k", 1, seconds=7.0, forwards=5),
    ]
    items += [item("dcd", "gsm8k", 7, seconds=100.0, forwards=1000)]
    row = measure(save(tmp_path, items)).to_dict("records")[1]
    assert (row["speedup"], row["forward_speedup"], row["shared_items"]) == (0.5, 4.0, 2)
    assert row["seconds_per_item"] == 36.0 and row["items"] == 3


def test_unscored_suites_say_so_and_why(tmp_path: Path) -> None:
    items = [
        row | {"correct": None if row["suite"] == "math" else row["correct"]}
        for row in full_items()
    ]
    files = render(
        save(tmp_path, items, scoring={"not_scored": {"math": "no sandbox (bubblewrap)"}})
    )
    rows = rows_of(files["main.md"])
    assert (
        rows["FeF-DLLM (step=2)"][3] == "n/s" and rows["FeF-DLLM (step=2)"][4] == "<ins>4.00x</ins>"
    )
    assert rows["FeF-DLLM (step=2)"][6:8] == ["**100.00**", "<ins>4.00x</ins>"]
    assert "- not scored: no sandbox (bubblewrap) (MATH)\n" in files["main.md"]


def test_items_without_a_verdict_are_left_out_of_accuracy(tmp_path: Path) -> None:
    items = [
        *(item("dcd", "gsm8k", number) for number in range(3)),
        item("llada", "gsm8k", 0),
        item("llada", "gsm8k", 1, correct=False),
        item("llada", "gsm8k", 2),
    ]
    del items[-1]["correct"]
    run = save(tmp_path, items)
    row = measure(run).to_dict("records")[0]
    assert (row["accuracy"], row["scored"], row["items"]) == (50.0, 2, 3)
    rows = rows_of(render(run)["main.md"])
    assert (rows["LLaDA"][0], rows["DCD"][0]) == ("50.00 [i]", "**100.00**")


def test_without_llada_there_is_no_speed(tmp_path: Path) -> None:
    items = full_items() + [item("dcd", "math", n) for n in range(4)]
    items = [row for row in items if (row["method"], row["suite"]) != ("llada", "math")]
    files = render(save(tmp_path, items))
    rows = rows_of(files["main.md"])
    assert rows["FeF-DLLM (step=2)"][3:6] == ["100.00", "-", "-"]
    assert rows["LLaDA"][3:7] == ["-", "-", "-", "-"]
    run = save(tmp_path / "own", [row for row in items if row["method"] != "llada"])
    run.config.methods.pop("llada")
    assert "- baseline: no llada: no Speed, no Fwd.\n" in render(run)["main.md"]


def test_mean_needs_every_suite_of_the_run(tmp_path: Path) -> None:
    rows = rows_of(
        render(save(tmp_path, [row for row in full_items() if row["suite"] == "gsm8k"]))["main.md"]
    )
    assert len(rows["Method"]) == 6 and rows["LLaDA"][3:] == ["-"] * 3
    alone = [row for row in full_items() if row["suite"] == "gsm8k"]
    assert "Mean" not in render(save(tmp_path, alone, suites={"gsm8k": "GSM8K"}))["main.md"]


def test_same_records_in_any_order_give_the_same_bytes(tmp_path: Path) -> None:
    items = [
        row | {"seconds": 0.1 + 0.017 * number**1.3}
        for number, row in enumerate(full_items(PAPER_SUITES))
    ]
    windows = [window("fef-2", "math", n, 1 + n) for n in range(4)]
    run = save(tmp_path, items, windows, PAPER_SUITES)
    passes = pd.DataFrame([ROW | {"item": number, "plain": 0.1 + number} for number in range(3)])
    turned = replace(run, items=run.items[::-1], windows=run.windows[::-1], passes=passes[::-1])
    assert render(replace(run, passes=passes), **EVERYTHING) == render(turned, **EVERYTHING)


def test_a_run_that_was_not_timed_has_no_speed_anywhere(tmp_path: Path) -> None:
    windows = [window("fef-2", "gsm8k", n, 3) for n in range(4)]
    run = save(tmp_path, full_items(PAPER_SUITES), windows, PAPER_SUITES)
    run.config.timed = False
    run.config.methods["fef-2"].method = "fef"
    files = render(run, **EVERYTHING)
    assert rows_of(files["measures.md"])["LLaDA"][-5:] == ["-"] * 5
    assert (
        rows_of(files["tokens.md"])["LLaDA"][1:7] == ["-"] * 6
        and "Speed" not in files["against.md"]
    )
    rows = rows_of(files["main.md"])
    assert (
        rows["Method"][:3] == ["GSM8K Acc.", "GSM8K Fwd.", "MATH Acc."]
        and len(rows["Method"]) == 10
    )
    assert rows["FeF-DLLM (step=2)"] == ["**100.00**", "2.00x"] * 5
    assert rows_of(files["paper.md"])["FeF-DLLM (step=2), paper"][:2] == ["**79.38**", "**36.40**"]
    theory = rows_of(files["theory.md"])["Method"]
    assert (
        theory[-3:] == ["Fwd. predicted", "Fwd. measured", "Fwd. ratio"] and "c\\_rho" not in theory
    )
    for name in ("main.md", "paper.md", "theory.md"):
        assert "- seconds: not for comparison\n" in files[name] and "Speed" not in files[name]
    for name in ("main", "theory"):
        frame = pd.read_csv(io.StringIO(files[f"{name}.csv"]))
        assert frame["speedup"].isna().all() and frame["forward_speedup"].notna().all()


def test_labels_are_escaped(tmp_path: Path) -> None:
    assert escape_latex(r"50% a_b & #1 ~ {x} \y <z>") == (
        r"50\% a\_b \& \#1 \textasciitilde{} \{x\} \textbackslash{}y \textless{}z\textgreater{}"
    )
    assert escape_latex("--tps a-b") == "-{}-tps a-b"
    assert escape_markdown("a|b *c* [d]") == r"a\|b \*c\* \[d\]"
    assert escape_markdown("a\nb\r\n\nc") == escape_latex("a\nb\r\n\nc") == "a b   c"
    run = save(tmp_path, full_items(), suites={"gsm8k": "G_S & M", "math": "100%"})
    assert r"{G\_S \& M}" in render(run)["main.tex"] and r"{100\%}" in render(run)["main.tex"]


def test_the_reports_overview_names_the_checkpoint_of_each_row(tmp_path: Path) -> None:
    config = msgspec.to_builtins(save(tmp_path, full_items()).config)
    config["models"] = {
        "base": {"gsm8k": "nano", "math": "nano"},
        "fef": {"gsm8k": "nano-fef", "math": "nano-fef"},
    }
    config["methods"]["fef-2"]["role"] = "fef"
    book = open_book([save(tmp_path, full_items(), config=config)])
    rows = main_table(book, numbers_of_runs(book)).rows
    assert {row.label: row.cells[0].text for row in rows} == {
        "LLaDA": "nano",
        "FeF-DLLM (step=2)": "nano-fef",
    }


# The paper's numbers
ABLATIONS = [
    method
    for name in ("training", "speculation", "draft", "window-size")
    for method in GROUPS[name]
]


def test_paper_stands_beside_the_measured_numbers(tmp_path: Path) -> None:
    suites = {**PAPER_SUITES, "lists": "Lists"}
    items = full_items(suites) + [item("dcd", "lists", n) for n in range(4)]
    run = save(tmp_path, items, suites=suites)
    run.config.methods["fef-2"].method = "fef"
    files = render(run, paper=True)
    rows = rows_of(files["paper.md"])
    assert rows["FeF-DLLM (step=2), paper"][:2] == ["**79.38**", "<ins>3.55x</ins>"]
    assert rows["FeF-DLLM (step=2), measured"] == ["**100.00**", "<ins>4.00x</ins>"] * 5
    assert "DCD" not in files["paper.md"] and "Lists" not in files["paper.md"]


def test_a_decoder_from_outside_stands_with_the_papers_without_its_numbers(tmp_path: Path) -> None:
    methods = {
        name: {"label": label, "method": name}
        for name, label in (("llada", "LLaDA"), ("mine", "Mine"))
    }
    config = {"methods": methods, "suites": {"gsm8k": {"title": "GSM8K"}}}
    plugin = {
        "plugin": "mine.py",
        "path": "mine.py",
        "sha256": "0",
        "registered": {"decoders": ["mine"]},
    }
    items = [item(method, "gsm8k", 0, seconds=1.0) for method in methods]
    rows = rows_of(
        render(save(tmp_path, items, config=config, plugins=[plugin]), paper=True)["paper.md"]
    )
    assert rows["Mine, paper"] == ["-", "-"] and rows["Mine, measured"] == ["100.00", "1.00x"]


def test_a_row_of_the_papers_is_known_by_its_decoder_too(tmp_path: Path) -> None:
    run = save(tmp_path, full_items(PAPER_SUITES), suites=PAPER_SUITES)
    run.config.methods["fef-2"].method = "threshold"
    rows = rows_of(render(run, paper=True)["paper.md"])
    assert "LLaDA, paper" in rows and "FeF-DLLM (step=2), paper" not in rows


def test_paper_numbers_are_the_papers_and_of_methods() -> None:
    methods = methods_named(",".join({"main": 0, **dict.fromkeys(ABLATIONS)}))
    assert set(paper_numbers()["label"]) <= {preset.row for preset in methods.values()}
    numbers = [tuple(row) for row in paper_numbers().to_numpy().tolist()]
    assert len({row[:2] for row in numbers}) == len(numbers) == 15 * 5
    found = {row[:4] for row in numbers}
    assert ("DCD", "humaneval", 50.0, 0.43) in found and (
        "LLaDA w/ train",
        "mean",
        46.28,
        1.0,
    ) in found
    assert ("FeF-DLLM w/o SD (step=4)", "mbpp", 42.6, 0.4) in found
    assert ("FeF-DLLM (step=4, window=8)", "mean", 52.06, 1.42) in found
    assert ("FeF-DLLM (step=4)", "gsm8k", 79.68, 2.14, 63.29) in numbers
    assert ("FeF-DLLM, draft w/o train (step=4)", "mbpp", 42.6, 2.89, 91.77) in numbers
