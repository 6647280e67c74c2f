"""Scoring: a stage of its own, on finished records, through OpenCompass's evaluators; it can be repeated at any time.

    python harness/scoring.py results/runs/NAME

The evaluators run in a process of their own, for two suites execute code that a model wrote. Where bubblewrap is
installed that process has no network, a read-only view of the file system but for a scratch folder, and no other
process in sight; where it is not, a note says so.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from harness.errors import UserError, one_line_errors
from harness.hashes import file_hash
from harness.plan import write_generated
from harness.records import Recorder, read_lines, read_run, write_atomically
from harness.suites import SUITES, data_file, dataset_config


def score_run(folder: Path) -> None:
    """Score every item of a run in a separate process and write `correct` into its records.

    run.json receives how model-written code was contained: {"scoring": {"sandbox": "bubblewrap" or "none"}}. Raises
    UserError if the process fails.
    """
    folder = Path(folder).resolve()
    meta = read_run(folder).meta
    with tempfile.TemporaryDirectory(prefix="scoring-") as scratch:
        command = [sys.executable, "-m", "harness.scoring", str(folder), "--verdicts", f"{scratch}/verdicts.json"]
        bwrap = shutil.which("bwrap")
        if bwrap is not None:
            needed = [folder, Path(sys.prefix), Path(__file__).parents[1], Path(meta["data"]["folder"])]
            command = [*_sandbox(bwrap, needed, Path(scratch)), *command]
        else:
            print("note: bubblewrap is not installed; model-written code runs without a sandbox", file=sys.stderr)
        environment = os.environ | {
            "HF_HOME": scratch,
            "HF_DATASETS_CACHE": scratch,
            "TMPDIR": scratch,
            "TOKENIZERS_PARALLELISM": "false",
        }
        done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True, check=False)
        verdicts = Path(scratch) / "verdicts.json"
        if done.returncode != 0 or not verdicts.exists():
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise UserError(f"scoring failed: {reason}; the records are kept, try: python harness/scoring.py {folder}")
        rows = json.loads(verdicts.read_text(encoding="utf-8"))
    Recorder(folder).score({(method, suite, item): correct for method, suite, item, correct in rows})
    meta["scoring"] = {"sandbox": "none" if bwrap is None else "bubblewrap"}
    write_atomically(folder / "run.json", json.dumps(meta, indent=1) + "\n")


def _sandbox(bwrap: str, needed: list[Path], scratch: Path) -> list[str]:
    """bubblewrap's command line: all is read-only, /tmp is empty but for what is needed there, scratch is writable."""
    bind = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    for path in {path.resolve() for path in needed if path.exists()}:
        bind += ["--ro-bind", str(path), str(path)] if path.is_relative_to("/tmp") else []
    return [bwrap, *bind, "--bind", str(scratch), str(scratch), "--unshare-all", "--die-with-parent", "--new-session"]


def verdicts_of(folder: Path) -> list[tuple[str, str, int, bool]]:
    """Run OpenCompass's evaluation task on every (method, suite) of a run: (method, suite, item, correct) rows."""
    meta = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for item in read_lines(folder / "items.jsonl"):
        groups[item["method"], item["suite"]].append(item)
    generated = isinstance(meta["config"]["data"], str)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) if generated else Path(meta["data"]["folder"])
        if generated:
            write_generated(data, meta["config"])
        for (method, suite), items in groups.items():
            if file_hash(data_file(suite, data)) != meta["data"]["files"][suite]["sha256"]:
                raise UserError(
                    f"the problems of {suite} are not those of the run: their SHA-256 differs from run.json's"
                )
            config = dataset_config(suite, data, generated)
            correct = evaluate(config, [item["item"] for item in items], [item["text"] for item in items])
            rows += [(method, suite, item["item"], verdict) for item, verdict in zip(items, correct, strict=True)]
    return rows


def evaluate(dataset: dict[str, Any], items: list[int], texts: list[str]) -> list[bool]:
    """OpenCompass's verdict on `texts`, the responses to these items of a dataset.

    Its own evaluation task does the work: the dataset's loader, the postprocessors and the evaluator of the
    configuration; only the items asked for are scored.
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
    parser.add_argument("--verdicts", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.verdicts is not None:
        write_atomically(asked.verdicts, json.dumps(verdicts_of(asked.run)))
        return 0
    score_run(asked.run)
    items = read_run(asked.run).items
    for (method, suite), group in items.groupby(["method", "suite"], sort=False):
        print(f"{method:12} {SUITES[str(suite)].title:10} {100 * group['correct'].mean():6.2f}% of {len(group)}")
    return 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
