"""What the run card and the marks say of a run: its model, items, machine, workers, code and
settings, and what is missing."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from rendering import render
from run_records import NANO_SHA256, full_items, item, save

from harness.measures.card import Card, card_of
from harness.measures.table import measure
from harness.records.store import Run


def card(run: Run) -> Card:
    return card_of(run, measure(run))


def test_a_table_has_the_card_in_markdown_as_a_list_and_in_latex_as_comments(
    tmp_path: Path,
) -> None:
    files = render(save(tmp_path, full_items()), paper=True, measures=True)
    for name, text in files.items():
        if name.endswith(".md"):
            assert "\n- machine: cpu (Test CPU)\n" in text
        if name.endswith(".tex"):
            assert "\n% machine: cpu (Test CPU)\n" in text
    assert files["main.md"].startswith("Accuracy (%), and seconds and forward passes of LLaDA over")


def test_a_newline_in_a_value_ends_no_comment(tmp_path: Path) -> None:
    scoring = {"not_scored": {"math": "one\n\\end{document}"}}
    text = render(save(tmp_path, full_items(), scoring=scoring))["main.tex"]
    assert "\n% not scored: one \\end{document} (MATH)\n" in text


def test_models_are_named_and_not_where_they_lie(tmp_path: Path) -> None:
    weights: dict[str, Any] = {
        "base": {"name": "/models/LLaDA-8B-Instruct", "parameters": 8_015_581_184},
        "fef": {"name": "/models/tuned"},
    }
    gpu = {"device": "cuda:0", "gpu": "H200", "cpu": "Test CPU", "dtype": "bfloat16"}
    found = card(save(tmp_path, full_items(), weights=weights, environment=gpu))
    assert found["weights"] == "LLaDA-8B-Instruct (8015.6 M parameters), tuned"
    assert (found["machine"], found["dtype"]) == ("cuda:0 (H200)", "bfloat16")


@pytest.mark.parametrize(
    ("sha256", "shipped"),
    [
        (NANO_SHA256, True),
        ({"model.safetensors": "0" * 64}, False),
        ({}, False),
        (NANO_SHA256 | {"more.safetensors": "0" * 64}, False),
    ],
)
def test_a_model_that_is_called_nano_and_has_other_weights_does_not_ship(
    tmp_path: Path, sha256: dict[str, str], shipped: bool
) -> None:
    weights = {"nano": {"name": "nano", "parameters": 2_512_345, "sha256": sha256}}
    found = card(save(tmp_path, full_items(), weights=weights))["weights"]
    assert found == f"nano (2.5 M parameters{', shipped' if shipped else ''})"


def test_what_is_not_the_default_for_all_methods_is_named(tmp_path: Path) -> None:
    usual = save(tmp_path / "usual", full_items())
    names = ("temperature", "seed", "prompt", "reads_at", "chat_template_args")
    assert not set(names) & set(card(usual))
    arguments = {"mood": "calm"}
    changed = dict(zip(names, (0.7, 3, "plain", -1, arguments), strict=True))
    config = msgspec.to_builtins(usual.config) | changed
    found = card(save(tmp_path / "own", full_items(), config=config))
    assert {name: found[name] for name in names} == {k: str(v) for k, v in changed.items()}


@pytest.mark.parametrize(
    ("workers", "says"),
    [
        ([("n1", "H100"), ("n1", "H100"), ("n2", "H100")], "3 H100; hosts: 2"),
        ([("n1", "H100"), ("n2", "A100"), ("n2", "A100")], "2 A100, 1 H100; hosts: 2"),
    ],
)
def test_workers_are_counted_by_kind_and_host(
    tmp_path: Path, workers: list[tuple[str, str]], says: str
) -> None:
    session = {
        "workers": {
            f"{host}:{number}": {"host": host, "name": name}
            for number, (host, name) in enumerate(workers)
        }
    }
    assert card(save(tmp_path, full_items(), sessions=[session]))["workers"] == says


def test_the_commit_and_its_changes_are_named(tmp_path: Path) -> None:
    for dirty in (True, False):
        environment = {"device": "cpu", "dirty": dirty, "commit": "0123456789"}
        found = card(save(tmp_path / str(dirty), full_items(), environment=environment))
        assert found["commit"] == "01234567" and ("uncommitted changes" in found) == dirty


def test_suites_of_the_same_problems_are_named(tmp_path: Path) -> None:
    files = {"gsm8k": {"sha256": "a"}, "math": {"sha256": "a"}}
    run = save(tmp_path, full_items(), data={"files": files})
    assert card(run)["same problems"] == "GSM8K and MATH"
    other = files | {"math": {"sha256": "b"}}
    assert "same problems" not in card(save(tmp_path, full_items(), data={"files": other}))


def test_what_was_left_out_and_not_decoded_later_is_counted(tmp_path: Path) -> None:
    rows = [
        {"method": "llada", "suite": "gsm8k", "item": number, "reason": "killed"}
        for number in (0, 4, 5)
    ]
    run = save(tmp_path, full_items(), sessions=[{"left_out": rows}])
    assert card(run)["left out"] == "2 (killed)"


@pytest.mark.parametrize("data", ["generated", "generated-dev:7"])
def test_problems_for_development_and_of_a_seed_look_like_no_others(
    tmp_path: Path, data: str
) -> None:
    config = save(tmp_path / "usual", full_items()).config.to_json() | {"data": data}
    found = card(save(tmp_path / "run", full_items(), config=config))
    assert (found["problems a suite"], found["data"]) == ("4", data)


def test_problems_and_lengths_are_by_suite_where_they_differ(tmp_path: Path) -> None:
    lengths = {"gsm8k": 48, "math": 48, "mbpp": 64}
    settings = {suite: {"gen_length": length} for suite, length in lengths.items()}
    config = {
        "methods": {"llada": {"label": "LLaDA", "suites": settings}},
        "suites": {suite: {"title": suite.upper()} for suite in lengths},
    }
    ends = ((0, 0), (3, 0), (0, 1), (None, None))
    items = [
        item("llada", suite, number) | {"eos_tokens": eos, "post_stop_tokens": more}
        for suite in settings
        for number, (eos, more) in enumerate(ends)
    ]
    found = card(save(tmp_path, items[:-1], config=config))
    assert found["response tokens"] == "48 (GSM8K, MATH); 64 (MBPP)"
    assert found["problems a suite"] == "4 (GSM8K, MATH); 3 (MBPP)"
    assert found["without an end of text"] == "3 of 9"


def test_files_of_questions_are_named_with_their_judge(tmp_path: Path) -> None:
    own = {
        "file": "q.jsonl",
        "sha256": "a" * 64,
        "judge": "judge.py:right",
        "judge_sha256": "b" * 64,
    }
    suites = {"gsm8k": {"title": "GSM8K"}, "mine": {"title": "mine", "questions": own}}
    methods = {"llada": {"label": "LLaDA", "method": "llada"}}
    items = [item("llada", suite, 0) for suite in suites]
    config = {"data": "generated", "methods": methods, "suites": suites}
    run = save(tmp_path, items, config=config)
    found = card(run)["files"]
    assert found == "q.jsonl (aaaaaaaa), judged by judge.py:right (bbbbbbbb) (mine)"
    # A judge that changed and scored again.
    run.meta.scoring["judges"] = {"mine": "c" * 64}
    assert "judge.py:right (cccccccc)" in card(run)["files"]
