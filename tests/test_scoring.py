"""Scoring through OpenCompass's evaluators: references are right, nonsense is wrong, any subset can be scored."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.nano_suites import problems, write_suites
from harness.scoring import evaluate
from harness.suites import SUITES, dataset_config


@pytest.mark.parametrize("suite", SUITES)
def test_references_are_right_and_nonsense_is_wrong(suite: str, tmp_path: Path) -> None:
    write_suites(tmp_path, "dev", 6)
    responses = [problem.response for problem in problems(suite, "dev", 6)]
    items = [5, 0, 3]
    texts = [responses[5], "nonsense", responses[3]]
    assert evaluate(dataset_config(suite, tmp_path, generated=True), items, texts) == [True, False, True]


@pytest.mark.parametrize("suite", ["gsm8k", "math"])
def test_real_suites_want_the_answer_in_a_box(suite: str, tmp_path: Path) -> None:
    write_suites(tmp_path, "dev", 2)
    problem = next(iter(problems(suite, "dev", 1)))
    gold = problem.row["answer"].split("#### ")[1] if suite == "gsm8k" else problem.response.split("{")[1].split("}")[0]
    config = dataset_config(suite, tmp_path, generated=False)
    assert evaluate(config, [0], [rf"It is \boxed{{{gold}}}."]) == [True]
    assert evaluate(config, [0], [r"It is \boxed{-1}."]) == [False]
