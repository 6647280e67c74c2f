"""A response is judged once, as soon as it is there, by the evaluator that would judge it afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from verdicts_only import evaluate

from harness.errors import UserError
from harness.runs.judging import Judge, verdict_of
from harness.suites.registry import GENERATED, SUITES, generated_dataset, suite_named
from harness.suites.splits import problems, write_suites

TEXT_SUITES = [name for name in GENERATED if not SUITES[name].executes]


@pytest.mark.parametrize("suite", TEXT_SUITES)
def test_the_verdict_is_that_of_opencompass_own_evaluation(suite: str, tmp_path: Path) -> None:
    from mmengine.config import ConfigDict
    from opencompass.utils.build import build_dataset_from_cfg

    write_suites(tmp_path, "dev", 6, [suite])
    config = generated_dataset(suite_named(suite), tmp_path)
    test = build_dataset_from_cfg(ConfigDict(config)).test
    golds = [str(gold) for gold in test[config["reader_cfg"]["output_column"]]]
    right = [problem.response for problem in problems(suite, "dev", 6)]
    texts = [right[0], "nonsense", right[2], "", right[4], right[0]]
    judge = Judge(config["eval_cfg"], test, golds)
    verdicts = [judge.explained(item, text)[0] for item, text in enumerate(texts)]
    assert verdicts == evaluate(config, list(range(6)), texts)
    assert verdicts[0] and verdicts[2] and verdicts[4] and not verdicts[1] and not verdicts[3]


@pytest.mark.parametrize(
    ("detail", "verdict"), [({"correct": True}, True), ({"is_correct": [False]}, False), ({"correct": [True]}, True)]
)
def test_a_verdict_is_read(detail: dict[str, Any], verdict: bool) -> None:
    assert verdict_of(detail) is verdict


@pytest.mark.parametrize("detail", [{}, {"correct": [True, False]}, {"pred": "x"}])
def test_an_evaluator_without_a_verdict_per_item_is_refused(detail: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="no verdict per item"):
        verdict_of(detail)
