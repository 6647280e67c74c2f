"""ParallelBench (Kang et al., arXiv 2510.04767) from a checkout that the user has, for it has no licence.

`--suite parallelbench:waiting_line/copy --data CHECKOUT` reads the task's file, fills its prompt with the problem and
its solved example, and calls the checkout's metric.
"""

import json
import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from harness.errors import UserError, explained
from harness.outside import import_function

PREFIX = "parallelbench:"
PROMPT = "parallelbench"  # what Questions.prompt says of its files: the prompt is made, not a column
TASKS, METRICS = Path("dataset/parallel_bench/data/output/test"), Path("dataset/parallel_bench/metrics.py")
GRADED = ("summary_score", "paraphrase_score")  # a share of each response, not right or wrong
GRAMMAR = ("sentence_to_words_score", "grammar_score", "startwith_score")


def task_of(element: str, checkout: str | None) -> tuple[str, Path, str]:
    """Name, file and judge of an element parallelbench:GROUP/TASK. Raises UserError for a task that cannot be judged
    here."""
    task = element.removeprefix(PREFIX)
    folder = Path(checkout or "").expanduser().resolve() / TASKS
    file, wrong, metric = folder / f"{task}.jsonl", "", ""
    if checkout is None or not folder.is_dir():
        wrong = f"it needs --data CHECKOUT, a checkout of furiosa-ai/ParallelBench with {TASKS}"
    elif not file.is_file():
        known = sorted(str(each.relative_to(folder).with_suffix("")) for each in folder.glob("*/*.jsonl"))
        wrong = f"{folder} has no such task; it has {', '.join(known)}"
    elif (metric := str(_config_of(file).get("metric"))) in GRADED:
        wrong = f"its metric {metric} grades a response, and a suite needs right or wrong"
    elif metric in GRAMMAR and (shutil.which("java") is None or find_spec("language_tool_python") is None):
        wrong = f"its metric {metric} needs Java and the package language_tool_python"
    if wrong:
        raise UserError(f"--suite {element}: {wrong}")
    root = folder.parents[len(TASKS.parts) - 1]
    return f"parallelbench-{task.replace('/', '-')}", file, f"{root / METRICS}:{metric}"


def rows_of(file: Path) -> list[dict[str, str]]:
    """The problems of a task: answer (JSON), shot and shown (a solved example, or ""), and prompt. Raises UserError."""
    prompt = str(_config_of(file)["prompt"])

    def filled(given: dict[str, Any]) -> str:
        return prompt.format(**given).replace("\\n", "\n")

    rows = []
    with explained(f"{file} is no task of ParallelBench", OSError, ValueError, KeyError, TypeError, AttributeError):
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            shots = row["input"].get("icl_examples") or [None]
            solved = shots[0] and (filled(shots[0]["input"]), shots[0]["answer"])
            shot, shown = solved or ("", "")
            shown = shown["example"] if isinstance(shown, dict) else shown
            texts = {"shot": shot, "shown": shown, "prompt": filled(row["input"])}
            rows.append({"answer": json.dumps(row["answer"]), **texts})
            if len(shots) > 1 or bool(shot) != bool(rows[0]["shot"]):
                raise ValueError("one solved example a problem is known, or none")
    return rows


def metric_of(judge: Path, name: str, version: str) -> Callable[[str, str], bool]:
    """A metric as a judge: whether it gives a response its full score. Raises UserError where it cannot be imported."""
    sys.path.insert(0, str(judge.parents[2]))  # it imports other files of the checkout
    try:
        metric = import_function(judge, name, version)
    finally:
        sys.path.pop(0)

    def right(response: str, answer: str) -> bool:
        score = metric(response, json.loads(answer))
        return float(score["score"] if isinstance(score, dict) else score) == 1.0

    return right


def _config_of(file: Path) -> dict[str, Any]:
    """A task's entry in task_config.yaml of its folder. Raises UserError where it has no prompt."""
    path = file.with_name("task_config.yaml")
    with explained(f"{path} says no prompt of {file.stem}", OSError, LookupError, TypeError, yaml.YAMLError):
        found = yaml.safe_load(path.read_text(encoding="utf-8"))[f"{file.parent.name}/{file.stem}"]
        return {**found, "prompt": "" + found["prompt"]}  # text alone
