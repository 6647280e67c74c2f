"""The verdicts of OpenCompass's evaluators on a run's records, in the process that runs them."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness.errors import UserError, one_line_errors
from harness.records.hashes import file_hash
from harness.records.store import read_lines, read_meta, write_atomically
from harness.runs.config import write_generated
from harness.runs.judging import verdict_of
from harness.sandbox.options import UNSAFE_OPTION
from harness.sandbox.probe import choose
from harness.suites.registry import SUITES, data_file, dataset_config


def verdicts_of(folder: Path, unsafe: bool = False, pending: bool = False) -> dict[str, Any]:
    """Run OpenCompass's evaluation task on every (method, suite) of a run, or those without verdicts if `pending`.

    Returns {"rows": [(method, suite, item, correct)], "scoring": as `score_run`}; correct is None where a suite was not
    scored.
    """
    meta = read_meta(folder)
    choice = choose(unsafe)
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for item in read_lines(folder / "items.jsonl"):
        groups.setdefault((item["method"], item["suite"]), []).append(item)
    if pending:
        groups = {key: items for key, items in groups.items() if any(item.get("correct") is None for item in items)}
    generated = meta.config.generated
    rows: list[tuple[str, str, int, bool | None]] = []
    not_scored = {}
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) if generated else Path(meta.data["folder"])
        if generated:
            write_generated(data, meta.config)
        for (method, suite), items in groups.items():
            if file_hash(data_file(suite, data)) != meta.data["files"][suite]["sha256"]:
                raise UserError(
                    f"the problems of {suite} are not those of the run: their SHA-256 differs from run.json's"
                )
            numbers = [item["item"] for item in items]
            if SUITES[suite].executes and choice.isolation is None:
                not_scored[suite] = choice.missing
                rows += [(method, suite, number, None) for number in numbers]
                continue
            config = dataset_config(suite, data, generated)
            if SUITES[suite].executes:
                evaluation = config["eval_cfg"]
                config["eval_cfg"] = evaluation | {"evaluator": evaluation["evaluator"] | {"unsafe": unsafe}}
            correct = evaluate(config, numbers, [item["text"] for item in items])
            rows += [(method, suite, number, verdict) for number, verdict in zip(numbers, correct, strict=True)]
    sandbox = "none" if choice.isolation is None else choice.isolation.name
    return {"rows": rows, "scoring": {"sandbox": sandbox, "not_scored": not_scored}}


def evaluate(dataset: dict[str, Any], items: list[int], texts: list[str]) -> list[bool]:
    """OpenCompass's verdict on `texts`, the responses to these items of a dataset.

    Its own evaluation task does the work: the dataset's loader, the postprocessors and the evaluator of the
    configuration; only the items asked for are scored. Raises UserError if that means to run model-written code and no
    sandbox works here.
    """
    from mmengine.config import ConfigDict
    from opencompass.tasks import OpenICLEvalTask

    class RecordedEvalTask(OpenICLEvalTask):  # type: ignore[misc]
        """The evaluation task, its predictions taken from records."""

        result: dict[str, Any]

        def _load_and_preprocess_test_data(self) -> Any:
            return super()._load_and_preprocess_test_data().select(items)

        def _load_predictions(self) -> tuple[list[dict[str, str]], list[str]]:
            return [{"prediction": text} for text in texts], list(texts)

        def _save_results(self, result: dict[str, Any]) -> None:
            self.result = result

    with tempfile.TemporaryDirectory() as work_dir:
        config = {
            "models": [{"abbr": "recorded", "type": "recorded"}],
            "datasets": [[dataset]],
            "work_dir": work_dir,
            "eval": {"runner": {"task": {"dump_details": True}}},
        }
        task = RecordedEvalTask(ConfigDict(config))
        task.run()
    return [verdict_of(detail) for detail in task.result["details"]]


def main(line: list[str] | None = None) -> int:
    """Write the verdicts on a run into a file; `scoring.score_run` starts it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("verdicts", type=Path)
    parser.add_argument("--pending", action="store_true")
    parser.add_argument(UNSAFE_OPTION, action="store_true")
    asked = parser.parse_args(line)
    found = verdicts_of(asked.run, asked.unsafe_code_execution, asked.pending)
    write_atomically(asked.verdicts, json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
