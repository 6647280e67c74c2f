"""Files of questions as a dataset and an evaluator of OpenCompass's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from datasets import Dataset
from opencompass.datasets.base import BaseDataset
from opencompass.openicl.icl_evaluator import BaseEvaluator

from harness.suites.questions import Questions, judge_of, read_questions


class QuestionsDataset(BaseDataset):  # type: ignore[misc]
    """A file of questions, with the columns prompt and answer."""

    @staticmethod
    def load(path: str, columns: dict[str, str]) -> Dataset:
        """The questions. Raises UserError, naming the line, for a file that cannot be used."""
        return Dataset.from_list(read_questions(Questions(Path(path), columns["prompt"], columns["answer"])))


class QuestionsEvaluator(BaseEvaluator):  # type: ignore[misc]
    """Accuracy by a judge: `exact`, `number`, or FILE.py:FUNCTION."""

    def __init__(self, judge: str) -> None:
        super().__init__()
        self._judge = judge_of(judge)

    def score(self, predictions: list[str], references: list[str]) -> dict[str, Any]:
        """accuracy in percent, and a verdict per item. Raises UserError if the judge fails."""
        details = [
            {"pred": text, "answer": answer, "correct": self._judge(text, answer)}
            for text, answer in zip(predictions, references, strict=True)
        ]
        return {"accuracy": 100 * sum(bool(each["correct"]) for each in details) / len(details), "details": details}
