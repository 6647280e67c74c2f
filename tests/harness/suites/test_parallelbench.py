"""ParallelBench from a checkout: its layout is read, its metric judges, and what cannot judge here is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import harness
from harness.errors import UserError
from harness.records.store import read_run
from harness.suites.questions import MADE, TASKS, judge_of, parallelbench_rows
from harness.suites.registry import suites_named

METRICS = """
from dataset.parallel_bench.words import words

def same_words(prediction, ground_truth, strict=False):
    return float(words(prediction) == words(ground_truth))

def any_order(prediction, ground_truth, strict=False):
    return {"score": float(sorted(words(prediction)) == sorted(ground_truth["input"]))}
"""


def row(text: str, answer: Any, *solved: Any) -> dict[str, Any]:
    shots = [{"input": {"context": text}, "answer": answer} for text, answer in solved]
    return {"input": {"context": text} | ({"icl_examples": shots} if shots else {}), "answer": answer, "metadata": {}}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in its layout, with tasks and metrics of our own."""
    tasks = {
        "copy": ("same_words", [row("ant, bee", "ant, bee", ("cow", "cow")), row("elk", "elk", ("owl", "owl"))]),
        "mix": ("any_order", [row("ant, bee", {"input": ["ant", "bee"], "example": "bee, ant"})]),
        "sum": ("summary_score", [row("x", {"summary": "x"})]),
        "sentence": ("sentence_to_words_score", [row("x", {"words": ["x"]})]),
    }
    folder = tmp_path / "checkout" / TASKS / "line"
    folder.mkdir(parents=True)
    for name, (_, rows) in tasks.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    config = {f"line/{name}": {"metric": metric, "prompt": "Copy {context}"} for name, (metric, _) in tasks.items()}
    (folder / "task_config.yaml").write_text(yaml.safe_dump(config))
    package = tmp_path / "checkout" / "dataset" / "parallel_bench"
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "words.py").write_text("def words(text):\n    return text.replace(',', ' ').split()\n")
    (package / "metrics.py").write_text(METRICS)
    return tmp_path / "checkout"


def test_a_task_has_its_prompts_solved_examples_and_metric(checkout: Path) -> None:
    suite = suites_named("parallelbench:line/copy", str(checkout))["parallelbench-line-copy"]
    assert suite.questions is not None and suite.questions.prompt == MADE
    first = parallelbench_rows(suite.questions.file)[0]
    assert first == {"answer": '"ant, bee"', "shot": "Copy cow", "shown": "cow", "prompt": "Copy ant, bee"}
    judge = judge_of(suite.questions.judge)
    assert judge("ant,  bee", first["answer"]) and not judge("bee, ant", first["answer"])


def test_a_metric_may_give_a_dictionary_and_an_answer_be_one(checkout: Path) -> None:
    questions = suites_named("parallelbench:line/mix", str(checkout))["parallelbench-line-mix"].questions
    assert questions is not None
    answer = parallelbench_rows(questions.file)[0]["answer"]
    assert judge_of(questions.judge)("bee, ant", answer) and not judge_of(questions.judge)("bee", answer)


@pytest.mark.parametrize(
    ("task", "data", "says"),
    [
        ("line/copy", None, "needs --data CHECKOUT"),
        ("line/copy", "elsewhere", "needs --data CHECKOUT"),
        ("line/none", "", "has no such task; it has line/copy, line/mix, line/sentence, line/sum"),
        ("line/sum", "", "grades a response, and a suite needs right or wrong"),
        ("line/sentence", "", "needs Java and the package language_tool_python"),
    ],
)
def test_what_cannot_be_judged_is_refused(
    task: str, data: str | None, says: str, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    folder = None if data is None else str(checkout / data)
    with pytest.raises(UserError, match=says):
        suites_named(f"parallelbench:{task}", folder)


@pytest.mark.parametrize("line", ["{", "[]", '{"input": {}, "answer": ""}'])
def test_another_layout_is_refused(line: str, checkout: Path) -> None:
    file = checkout / TASKS / "line" / "copy.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(UserError, match="is no task of ParallelBench"):
        parallelbench_rows(file)


@pytest.mark.usefixtures("one_process")
def test_a_task_is_decoded_and_judged(checkout: Path, tmp_path: Path) -> None:
    given = {"data": str(checkout), "threads": 1, "untimed": True, "gen_length": 32}
    suites = "parallelbench:line/copy,parallelbench:line/mix"
    harness.evaluate("threshold", suites, out=tmp_path / "run", **given)
    items = read_run(tmp_path / "run").items
    assert sorted(items["suite"]) == ["parallelbench-line-copy"] * 2 + ["parallelbench-line-mix"]
    assert items["correct"].notna().all()
