"""OpenCompass's verdicts without what its evaluators say, and an evaluator of its kind that gives none per item."""

from typing import Any

from opencompass.openicl.icl_evaluator import BaseEvaluator


def evaluate(dataset: dict[str, Any], items: list[int], texts: list[str]) -> list[bool]:
    """Whether responses to these items of a dataset are right."""
    from harness.sandbox.verdicts import explained

    return [verdict for verdict, _ in explained(dataset, items, texts)]


class OneNumber(BaseEvaluator):  # type: ignore[misc]
    """Percent of the responses that equal their reference."""

    def score(self, predictions: list[str], references: list[str]) -> dict[str, float]:
        right = [prediction == reference for prediction, reference in zip(predictions, references, strict=True)]
        return {"exact": 100 * sum(right) / len(right)}
