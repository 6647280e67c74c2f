"""Scoring: a stage of its own, on finished records, through OpenCompass's evaluators; it can be repeated at any time.

    python harness/scoring.py results/runs/NAME

The evaluators run in a process of their own, and of two suites (HumanEval, MBPP) they execute code that a model wrote:
every program in a bubblewrap sandbox of its own, without network, with a read-only view of the system's folders, an
empty scratch folder, and limits on memory, processes, files and time. Where no sandbox works, the items of these suites
are not scored, and the tables say so and what to do; with --unsafe-code-execution such code then runs unprotected.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from harness.errors import UserError, one_line_errors
from harness.hashes import file_hash
from harness.plan import write_generated
from harness.records import Recorder, read_lines, read_meta, read_run, write_atomically
from harness.run_folder import exclusive, update_meta
from harness.sandbox_probe import choose
from harness.suites import SUITES, data_file, dataset_config

UNSAFE_OPTION = "--unsafe-code-execution"
UNSAFE_HELP = "where no sandbox works, run model-written code unprotected instead of not scoring it"


def score_run(folder: Path, unsafe: bool = False) -> dict[str, Any]:
    """Score every item of a run in a separate process and write `correct` into its records.

    All verdicts of a run come from one scoring: where a suite cannot be scored now, verdicts that it had are removed,
    never kept beside new ones. unsafe: run model-written code even where no sandbox works. Returns what run.json
    receives as `scoring`: {"sandbox": "bubblewrap", "unsafe" or "none", "not_scored": {suite: why}}. Raises UserError
    if the process fails.
    """
    folder = Path(folder).resolve()
    read_meta(folder)  # refused here, if it is damaged, and not in the process of the evaluators
    with tempfile.TemporaryDirectory(prefix="scoring-") as scratch:
        verdicts = Path(scratch) / "verdicts.json"
        options = ["--verdicts", str(verdicts), *([UNSAFE_OPTION] if unsafe else [])]
        environment = os.environ | {
            "HF_HOME": scratch,
            "HF_DATASETS_CACHE": scratch,
            "TMPDIR": scratch,
            "TOKENIZERS_PARALLELISM": "false",
        }
        command = [sys.executable, "-m", "harness.scoring", str(folder), *options]
        done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not verdicts.exists():
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise UserError(f"scoring failed: {reason}; the records are kept, try: python harness/scoring.py {folder}")
        scored = json.loads(verdicts.read_text(encoding="utf-8"))
    Recorder(folder).score({(method, suite, item): correct for method, suite, item, correct in scored["rows"]})
    scoring: dict[str, Any] = scored["scoring"]
    update_meta(folder, scoring=scoring)
    return scoring


def describe_scoring(scoring: dict[str, Any]) -> str:
    """What a scoring did with model-written code, in one line."""
    if scoring["not_scored"]:
        reasons = "; ".join(dict.fromkeys(scoring["not_scored"].values()))
        return f"scored, but not {', '.join(scoring['not_scored'])}: {reasons}"
    containment = {
        "bubblewrap": "every model-written program in a sandbox of its own (bubblewrap)",
        "unsafe": "model-written programs UNPROTECTED, for no sandbox works here",
        "none": "no model-written program was run",
    }
    return f"scored: {containment[scoring['sandbox']]}"


def verdicts_of(folder: Path, unsafe: bool = False) -> dict[str, Any]:
    """Run OpenCompass's evaluation task on every (method, suite) of a run.

    Returns {"rows": [(method, suite, item, correct)], "scoring": as `score_run`}; correct is None where a suite was not
    scored.
    """
    meta = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    choice = choose(unsafe)
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for item in read_lines(folder / "items.jsonl"):
        groups[item["method"], item["suite"]].append(item)
    generated = isinstance(meta["config"]["data"], str)
    rows: list[tuple[str, str, int, bool | None]] = []
    not_scored = {}
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) if generated else Path(meta["data"]["folder"])
        if generated:
            write_generated(data, meta["config"])
        for (method, suite), items in groups.items():
            if file_hash(data_file(suite, data)) != meta["data"]["files"][suite]["sha256"]:
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
    return [_is_correct(detail) for detail in task.result["details"]]


def _is_correct(detail: dict[str, Any]) -> bool:
    verdict = detail.get("correct", detail.get("is_correct"))
    if not isinstance(verdict, list) or len(verdict) != 1:
        raise UserError(f"the evaluator gave no verdict per item: {detail}")
    return bool(verdict[0])


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run")
    parser.add_argument(UNSAFE_OPTION, action="store_true", help=UNSAFE_HELP)
    parser.add_argument("--verdicts", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.verdicts is not None:
        write_atomically(asked.verdicts, json.dumps(verdicts_of(asked.run, asked.unsafe_code_execution)))
        return 0
    read_meta(asked.run)  # no folder is made where no run is
    with exclusive(asked.run):
        print(describe_scoring(score_run(asked.run, asked.unsafe_code_execution)))
    items = read_run(asked.run).items
    for (method, suite), group in items.groupby(["method", "suite"], sort=False):
        verdicts = group["correct"].dropna().astype(bool)
        shown = f"{100 * verdicts.mean():6.2f}% of {len(verdicts)}" if len(verdicts) else "not scored"
        print(f"{method:12} {SUITES[str(suite)].title:10} {shown}")
    return 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
