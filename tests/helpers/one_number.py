"""An evaluator of OpenCompass's kind that gives one number for all responses and no verdict per item."""

from __future__ import annotations

from opencompass.openicl.icl_evaluator import BaseEvaluator


class OneNumber(BaseEvaluator):  # type: ignore[misc]
    """Percent of the responses that equal their reference."""

    def score(self, predictions: list[str], references: list[str]) -> dict[str, float]:
        right = [prediction == reference for prediction, reference in zip(predictions, references, strict=True)]
        return {"exact": 100 * sum(right) / len(right)}
