"""Tokens a response and tokens per second: every definition by hand, and notes on responses of another length."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from run_records import full_items, has_latex, item, rows_of, save, save_presets

from harness.records.store import Run
from tables import render as cli
from tables.output.pdf import write_pdf
from tables.render import render
from tables.sheets.tokens import LEDGER, token_ledger

SUITE = {"gsm8k": "GSM8K"}


def counted(method: str, number: int, content: int, **fields: Any) -> dict[str, Any]:
    """An item of 48 tokens after a prompt of 10: content, an end of turn and one more behind it, the rest EOS."""
    counts = {"prompt_tokens": 10, "content_tokens": content, "eos_tokens": 46 - content, "post_stop_tokens": 2}
    return item(method, "gsm8k", number, **(counts | fields))


def sized(folder: Path, items: list[dict[str, Any]]) -> Run:
    """A saved run whose configuration says 48 tokens a response."""
    methods = {name: {"label": name.upper(), "suites": {"gsm8k": {"gen_length": 48}}} for name in ("llada", "dcd")}
    config = {"data": "generated", "methods": methods, "suites": {"gsm8k": {"title": "GSM8K"}}}
    return save(folder, items, config=config)


def test_every_definition_is_total_tokens_over_total_seconds(tmp_path: Path) -> None:
    items = [counted("llada", 0, 20, seconds=1.0), counted("llada", 1, 30, seconds=4.0)]
    row = token_ledger(sized(tmp_path, items)).to_dict("records")[0]
    assert list(row) == LEDGER and (row["items"], row["seconds_per_item"]) == (2, 2.5)
    assert [row[f"{name}_tokens"] for name in ("prompt", "content", "eos", "post_stop")] == [10, 25, 21, 2]
    assert row["tps_content"] == 50 / 5 and row["tps_without_eos"] == (50 + 4) / 5
    assert row["tps_generation_length"] == 96 / 5 and row["tps_prompt_and_generation"] == (96 + 20) / 5


def test_a_cache_shows_in_the_tokens_that_went_through_the_model(tmp_path: Path) -> None:
    passes = ({"token_forwards": 580, "cached_tokens": 0}, {"token_forwards": 120, "cached_tokens": 460})
    items = [counted(method, 0, 20, **cost) for method, cost in zip(("llada", "dcd"), passes, strict=True)]
    files = render(sized(tmp_path, items), tps=True)
    rows = rows_of(files["tps.md"])
    assert rows["LLADA"][6:9] == ["48.0", "580.0", "0.0"] and rows["DCD"][6:9] == ["48.0", "120.0", "460.0"]


def test_an_older_record_has_post_stop_tokens_by_the_generation_length(tmp_path: Path) -> None:
    items = [counted("llada", n, 20 + n) for n in range(3)]
    older = [{key: value for key, value in row.items() if key != "post_stop_tokens"} for row in items]
    mixed = [items[0], *older[1:]]
    expected = token_ledger(sized(tmp_path / "new", items))
    for name, rows in (("older", older), ("mixed", mixed)):
        pd.testing.assert_frame_equal(token_ledger(sized(tmp_path / name, rows)), expected)


def test_a_record_without_counts_has_seconds_alone(tmp_path: Path) -> None:
    files = render(save(tmp_path, full_items()), tps=True)
    assert rows_of(files["tps.md"])["LLaDA"] == ["MATH", "2.000", *["-"] * 4, "48.0", *["-"] * 6]
    assert list(pd.read_csv(io.StringIO(files["tps.csv"])).columns) == LEDGER


def test_the_table_names_and_explains_every_definition(tmp_path: Path) -> None:
    files = render(sized(tmp_path, [counted("llada", 0, 20)]), tps=True)
    rows = rows_of(files["tps.md"])
    counts = ["10.0", "20.0", "26.0", "2.0", "48.0", "-", "-"]
    assert rows["LLADA"] == ["GSM8K", "2.000", *counts, "10.0", "11.0", "24.0", "29.0"]
    caption = files["tps.md"].splitlines()[0]
    assert all(heading.removeprefix("Tokens/s ") in caption for heading in rows["Method"][-4:])


def test_tps_is_written_when_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = save_presets(tmp_path / "run", "llada", "ssd")
    assert "tps.md" not in render(run)
    assert cli.main([str(run.folder), "--tps"]) == 0
    written = {path.name for path in (run.folder / "tables").iterdir()}
    assert {"tps.md", "tps.csv", "tps.tex"} <= written and "Tokens/s content" in capsys.readouterr().out


def test_a_run_that_was_not_timed_has_no_tokens_per_second(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"methods": {"llada": {"label": "LLaDA"}}, "suites": {"gsm8k": {}}, "timed": False}
    run = save(tmp_path, [counted("llada", 0, 20)], config=config)
    assert cli.main([str(run.folder), "--tps"]) == 0
    assert "no tps.md: the run's seconds were not measured" in capsys.readouterr().out
    assert not (run.folder / "tables" / "tps.md").exists()
    ledger = token_ledger(run)
    assert ledger["tps_content"].isna().all() and ledger["content_tokens"].to_list() == [20]


def test_latex_groups_the_definitions_and_compiles(tmp_path: Path) -> None:
    run = sized(tmp_path / "run", [counted("llada", 0, 20)])
    run.config.suites["gsm8k"].title = "Suite x"  # no speedup, whatever its last letter
    latex = render(run, tps=True)["tps.tex"]
    assert r"\multicolumn{2}{c}{} & \multicolumn{4}{c}{Tokens} & \multicolumn{3}{c}{Model} & " in latex
    assert r"\cmidrule(lr){4-7}" in latex and r"\cmidrule(lr){2-3}" not in latex and "LLADA & Suite x &" in latex
    if not has_latex():
        pytest.skip("no pdflatex with booktabs and multirow")
    assert write_pdf([latex], tmp_path).exists()


@pytest.mark.parametrize(("content", "says"), [(17, "85%"), (18, ""), (20, ""), (22, ""), (23, "115%")])
def test_responses_of_another_length_are_noted_on_speed_alone(tmp_path: Path, content: int, says: str) -> None:
    items = [counted("llada", n, 20) for n in range(2)] + [counted("dcd", n, content, seconds=1.0) for n in range(2)]
    files = render(sized(tmp_path, items))
    mark = " [a]" if says else ""
    assert rows_of(files["main.md"])["DCD"] == ["**100.00**", f"<ins>2.00x</ins>{mark}", "1.00x"]
    assert (f"[a] responses are {says} as long as LLaDA's" in files["main.md"]) == bool(says)


def test_lengths_are_compared_over_shared_items_and_stand_beside_other_notes(tmp_path: Path) -> None:
    items = [counted("llada", n, 20) for n in range(3)]
    items += [counted("dcd", 0, 10, seconds=1.0), counted("dcd", 7, 40, seconds=1.0)]
    files = render(sized(tmp_path, items))
    assert "[a] accuracy over 2 of 3 items" in files["main.md"]
    note = "speedups over the 1 items shared with LLaDA"
    assert f"[b] {note}; responses are 50% as long as LLaDA's" in files["main.md"]
    assert rows_of(files["main.md"])["DCD"][1:] == ["2.00x [b]", "1.00x [c]"] and f"[c] {note}\n" in files["main.md"]


def test_llada_without_content_is_no_length_to_compare_with(tmp_path: Path) -> None:
    items = [counted("llada", 0, 0), counted("dcd", 0, 10)]
    assert "as long as" not in render(sized(tmp_path, items))["main.md"]
