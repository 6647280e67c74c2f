"""OpenCompass datasets and evaluators of lists and of files of questions, which it does not have."""

import json
from pathlib import Path
from typing import Any

from datasets import Dataset
from opencompass.datasets.base import BaseDataset
from opencompass.openicl.icl_evaluator import BaseEvaluator

from harness.suites.lists import list_is_right, read_list
from harness.suites.questions import Questions, judge_of, read_questions


class ListsDataset(BaseDataset):  # type: ignore[misc]
    """List operations: JSON lines of {question, task, items, new, answer}."""

    @staticmethod
    def load(path: str) -> Dataset:
        """The test problems, from a file that `harness.suites.splits` wrote."""
        return Dataset.from_list([json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()])


class ListsEvaluator(BaseEvaluator):  # type: ignore[misc]
    """Accuracy by the property that the task asks for."""

    def score(self, predictions: list[str], references: list[str], test_set: Dataset) -> dict[str, Any]:
        """accuracy in percent, and a verdict per item."""
        details = [
            {
                "pred": text,
                "answer": answer,
                "correct": list_is_right(row["task"], row["items"], row["new"], read_list(text)),
            }
            for text, answer, row in zip(predictions, references, test_set, strict=True)
        ]
        return _shared(details)


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
        return _shared(details)


def _shared(details: list[dict[str, Any]]) -> dict[str, Any]:
    """What an evaluator returns: the share that is right, in percent, and the verdicts."""
    return {"accuracy": 100 * sum(bool(each["correct"]) for each in details) / len(details), "details": details}
