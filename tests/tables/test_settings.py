"""Notes on rows whose settings are not those of LLaDA's row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from run_records import full_items, item, save

from harness.measures.settings import against_reference
from harness.records.store import Run
from tables.render import render

SOURCE = "owner/name@0123456789abcdef scripts/*.sh"


def run_of(folder: Path, llada: dict[str, Any], other: dict[str, Any]) -> Run:
    """A run of LLaDA and another method on GSM8K, with these settings."""
    methods = {
        "llada": {"label": "LLaDA", "method": "llada", "suites": {"gsm8k": llada}},
        "dcd": {"label": "DCD", "method": "dcd", "suites": {"gsm8k": other}},
    }
    config = {"data": "generated", "methods": methods, "suites": {"gsm8k": {"title": "GSM8K"}}}
    return save(folder, [item(name, "gsm8k", number) for name in methods for number in range(2)], config=config)


def note(folder: Path, llada: dict[str, Any], other: dict[str, Any]) -> str:
    """What is noted on the other method."""
    return against_reference(run_of(folder, llada, other))["dcd", "gsm8k"]


BLOCKS = {"gen_length": 256, "block_length": 8}


def test_equal_settings_have_no_note(tmp_path: Path) -> None:
    assert note(tmp_path, BLOCKS | {"options": {"steps": 256}}, BLOCKS | {"options": {"tau": 0.9}}) == ""
    assert note(tmp_path, {}, BLOCKS) == ""  # an older record does not say


def test_lengths_and_their_source_are_noted(tmp_path: Path) -> None:
    other = {"gen_length": 128, "block_length": 32, "published": SOURCE}
    expected = (
        "responses of 128 tokens, LLaDA's of 256, blocks of 32, LLaDA's blocks of 8, as published (owner/name@0123456)"
    )
    assert note(tmp_path, BLOCKS, other) == expected
    assert note(tmp_path, BLOCKS, {"gen_length": 256, "block_length": 256}) == "full sequence, LLaDA's blocks of 8"


def test_options_about_the_end_that_a_decoder_lacks_are_noted(tmp_path: Path) -> None:
    own = BLOCKS | {"options": {"logits_eos_inf": True, "stop_at_eos": True}}
    assert note(tmp_path, own, BLOCKS) == "without logits_eos_inf, without stop_at_eos"
    assert note(tmp_path, BLOCKS, own) == "with logits_eos_inf, with stop_at_eos"


def test_a_run_without_llada_has_no_such_notes(tmp_path: Path) -> None:
    run = save(tmp_path, [row for row in full_items() if row["method"] != "llada"])
    assert set(against_reference(run).values()) <= {""}


def test_files_of_questions_are_in_the_caption_and_not_code(tmp_path: Path) -> None:
    own = {"file": "q.jsonl", "sha256": "a" * 64, "judge": "judge.py:right", "judge_sha256": "b" * 64}
    suites = {"gsm8k": {"title": "GSM8K"}, "mine": {"title": "mine", "questions": own, "executes": False}}
    methods = {"llada": {"label": "LLaDA", "method": "llada"}}
    items = [item("llada", suite, 0) for suite in suites]
    scoring = {"not_enforced": ["memory is limited"]}
    config = {"data": "generated", "methods": methods, "suites": suites}
    table = render(save(tmp_path, items, config=config, scoring=scoring))["main.md"]
    caption = table.splitlines()[0].replace("\\", "")
    assert "generated in the suites' formats but for mine." in caption
    assert "Own questions: mine is q.jsonl (aaaaaaaa), judged by judge.py:right (bbbbbbbb)." in caption
    assert "memory is limited" not in table
