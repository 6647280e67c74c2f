"""OpenCompass's verdicts without what its evaluators say, and an evaluator of its kind that gives
none per item."""

from typing import Any

from mmengine.config import ConfigDict
from opencompass.openicl.icl_evaluator import BaseEvaluator
from opencompass.utils.build import build_dataset_from_cfg


def evaluate(config: dict[str, Any], items: list[int], texts: list[str]) -> list[bool]:
    """Whether responses to these items of a dataset are right."""
    from harness.runs.problems import Problems
    from harness.sandbox.program import choose
    from harness.sandbox.verdicts import judged

    dataset = build_dataset_from_cfg(ConfigDict(config))
    return [
        right
        for right, _ in judged(
            [Problems(config, dataset)], items, texts, choose(unsafe=True).sandbox
        )
    ]


class OneNumber(BaseEvaluator):  # type: ignore[misc]
    """Percent of the responses that equal their reference."""

    def score(self, predictions: list[str], references: list[str]) -> dict[str, float]:
        right = [
            prediction == reference
            for prediction, reference in zip(predictions, references, strict=True)
        ]
        return {"exact": 100 * sum(right) / len(right)}
