"""OpenCompass's verdicts on responses, by its evaluation task, where OpenCompass is imported
already.

An evaluator of OpenCompass's that executes code in a way of its own runs in one confined process
for each method, which is this file as a script: a JSON request on stdin, verdicts on stdout.
"""

import io
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from mmengine.config import ConfigDict
from opencompass.tasks import OpenICLEvalTask, openicl_eval

from harness.errors import UserError
from harness.records.environment import TOP
from harness.runs.problems import Problems, load_problems
from harness.sandbox.confined import confine
from harness.sandbox.evaluators import confined_programs
from harness.sandbox.program import (
    ENVIRONMENT,
    MIB,
    Sandbox,
    compiled_filter,
    confinement,
    end,
    last_line,
    wrapper,
)
from harness.suites.registry import suite_named

ALL_RIGHT = 100.0 - 1e-6  # percent
LONGEST = 300  # characters of what an evaluator says
SECONDS = 300.0  # of the clock, for the import of OpenCompass
SECONDS_PER_RESPONSE = 60.0
VERDICTS_BYTES = 2**28
# Of a process that evaluates with its children: bytes and counts.
LIMITS = {"RLIMIT_AS": 32768 * MIB, "RLIMIT_FSIZE": 1024 * MIB, "RLIMIT_CORE": 0}
READABLE = (
    "/proc",
    "/sys/devices/system/cpu",
    "/etc/passwd",
    "/etc/nsswitch.conf",
    "/etc/ssl",
    "/etc/mime.types",
)
CACHES = ("HF_HOME", "HF_DATASETS_CACHE", "MPLCONFIGDIR")  # of packages: in the scratch folder
Verdict = tuple[bool, str]  # whether a response is right, and what the evaluator says of it


def judged(
    problems: list[Problems], items: list[int], texts: list[str], sandbox: Sandbox | None
) -> list[Verdict]:
    """Verdicts on responses of one method to items, which are numbered through the datasets of a
    suite.

    sandbox: of the programs; None where the suite runs none. Raises UserError where an evaluator
    gives no verdict.
    """
    verdicts: dict[int, Verdict] = {}
    first = 0
    for part in problems:
        here = {
            item: text
            for item, text in zip(items, texts, strict=True)
            if first <= item < first + len(part)
        }
        if here:
            numbers = [item - first for item in here]
            verdicts |= dict(
                zip(here, _of_dataset(part, numbers, [*here.values()], sandbox), strict=True)
            )
        first += len(part)
    return [verdicts[item] for item in items]


def _of_dataset(
    part: Problems, items: list[int], texts: list[str], sandbox: Sandbox | None
) -> list[Verdict]:
    """Verdicts on responses to items of a dataset.

    An evaluator without a verdict per item gets one item at a time, and its first number says
    whether that is right (100) or wrong (0).
    """
    result = _evaluated(part, items, texts, sandbox)
    verdicts = []
    for detail in result.get("details") or []:
        verdict = verdict_in(detail)
        if verdict is not None:
            verdicts.append((verdict, explanation(detail)))
    if len(verdicts) == len(items):
        return verdicts
    if len(items) > 1:
        return [
            _of_dataset(part, [item], [text], sandbox)[0]
            for item, text in zip(items, texts, strict=True)
        ]
    return [(_is_right(result), "")]


def _is_right(result: dict[str, Any]) -> bool:
    """Whether one response is right, by an evaluator's first number. Raises UserError for a
    grade."""
    numbers = [value for value in result.values() if isinstance(value, int | float)]
    if not numbers:
        raise UserError(f"the evaluator gave no verdict per item and no number: {result}")
    right = bool(numbers[0] >= ALL_RIGHT)
    if not right and numbers[0] != 0:
        raise UserError(
            f"the evaluator gives one response {numbers[0]:g}; a suite needs 0, wrong, or 100,"
            " right"
        )
    return right


class RecordedEvalTask(OpenICLEvalTask):  # type: ignore[misc]
    """OpenCompass's evaluation task, its predictions taken from records."""

    texts: list[str]
    result: dict[str, Any]

    def _load_predictions(self) -> tuple[list[dict[str, str]], list[str]]:
        return [{"prediction": text} for text in self.texts], list(self.texts)

    def _save_results(self, result: dict[str, Any]) -> None:
        self.result = result


def _evaluated(
    part: Problems, items: list[int], texts: list[str], sandbox: Sandbox | None
) -> dict[str, Any]:
    """What OpenCompass's evaluation task finds."""
    rows = part.rows.select(items)
    with tempfile.TemporaryDirectory() as work_dir:
        config = {
            "models": [{"abbr": "recorded", "type": "recorded"}],
            "datasets": [[part.config]],
            "work_dir": work_dir,
            "eval": {"runner": {"task": {"dump_details": True}}},
        }
        task = RecordedEvalTask(ConfigDict(config))
        task.texts = texts
        programs = nullcontext() if sandbox is None else confined_programs(sandbox, rows)
        # The problems are loaded already.
        loaded = patch.object(
            openicl_eval, "build_dataset_from_cfg", lambda config: SimpleNamespace(test=rows)
        )
        quiet = io.StringIO()  # the evaluators' bars
        with loaded, programs, redirect_stdout(quiet), redirect_stderr(quiet):
            task.run()
    return task.result


def explanation(detail: Any) -> str:
    """Why an evaluator came to its verdict: the answer that it read, or how a program ended; "" if
    it does not say."""
    if not isinstance(detail, dict):
        return ""
    known = {"pred": "read ", "predictions": "read ", "result": "the program: "}
    texts = {name: _short(detail[name]) for name in known if detail.get(name) is not None}
    return "; ".join(f"{known[name]}{text}" for name, text in texts.items() if text)


def _short(value: Any) -> str:
    single = value[0] if isinstance(value, list) and len(value) == 1 else value
    why = getattr(single, "why", "")
    text = f"{single}; {why}" if why else str(single).strip()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} .."


def verdict_in(detail: Any) -> bool | None:
    """The verdict in what an evaluator says of one response; None if there is none. Raises
    UserError for a grade."""
    if not isinstance(detail, dict):
        return None
    verdict = detail.get("correct", detail.get("is_correct"))
    if isinstance(verdict, list):
        verdict = verdict[0] if len(verdict) == 1 else None
    if verdict is None:
        return None
    if isinstance(verdict, str) or verdict not in (0, 1):
        raise UserError(
            f"the evaluator grades a response ({verdict!r}), and a suite needs right or wrong"
        )
    return bool(verdict)


@dataclass(frozen=True)
class ConfinedEvaluator:
    """Judges responses to a suite in a confined process, which may start others; all end with it.

    Attributes:
        suite: its name.
        configs: of its datasets.
        limit: problems of each; None for all.
        data: folder of the problems, which the process may read.
        sandbox: of this machine.
    """

    suite: str
    configs: list[dict[str, Any]]
    limit: int | None
    data: Path
    sandbox: Sandbox

    def judged(self, items: list[int], texts: list[str]) -> list[Verdict]:
        """As `judged`, of the responses of one method.

        Where the process gives no verdicts, each half of the responses gets a process of its own,
        down to the response that ended it, which is wrong.

        Raises:
            UserError: an empty response gets no verdict either.
        """
        if not items:
            return []
        verdicts, complaint = self._in_process(items, texts)
        if verdicts is not None:
            return verdicts
        if len(items) == 1:
            empty, _ = self._in_process(items, [""])
            if empty is None:
                raise UserError(f"the evaluator of {self.suite} gives no verdicts: {complaint}")
            return [(False, f"its process gave no verdict: {complaint}")]
        half = len(items) // 2
        return [*self.judged(items[:half], texts[:half]), *self.judged(items[half:], texts[half:])]

    def _in_process(self, items: list[int], texts: list[str]) -> tuple[list[Verdict] | None, str]:
        """Verdicts of a confined process, None if it gave none in time; and the last line that it
        wrote."""
        shown = (str(TOP), str(self.data))
        with (
            tempfile.TemporaryDirectory(prefix="scoring-", ignore_cleanup_errors=True) as scratch,
            ExitStack() as stack,
        ):
            request = {
                "confined": self._confinement(scratch, shown),
                "suite": self.suite,
                "configs": self.configs,
                "limit": self.limit,
                "items": items,
                "texts": texts,
            }
            sent, answer, complaints = (
                stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)
            )
            sent.write(json.dumps(request).encode())
            sent.seek(0)
            process = subprocess.Popen(
                [*wrapper(self.sandbox, shown), sys.executable, "-m", "harness.sandbox.verdicts"],
                stdin=sent,
                stdout=answer,
                stderr=complaints,
                env=ENVIRONMENT | {"PYTHONPATH": str(TOP)} | dict.fromkeys(CACHES, "."),
                cwd=None if self.sandbox.bwrap else scratch,
                start_new_session=True,
            )
            stack.callback(end, process)
            try:
                process.wait(SECONDS + SECONDS_PER_RESPONSE * len(items))
            except subprocess.TimeoutExpired:
                return None, "it took too long"
            complaints.seek(0)
            complaint = last_line(complaints.read())
            answer.seek(0)
            try:
                verdicts = json.loads(answer.read(VERDICTS_BYTES))
                return [(bool(right), str(why)) for right, why in verdicts], complaint
            except (ValueError, TypeError):
                return None, complaint

    def _confinement(self, scratch: str, shown: tuple[str, ...]) -> dict[str, Any]:
        confined = confinement(self.sandbox, scratch)
        # Semaphores and sockets between children: where another user can reach nobody else's.
        shared = confined["user"] is not None or bool(self.sandbox.bwrap)
        confined["limits"] = LIMITS
        confined["readable"] = [*confined["readable"], *shown, *READABLE]
        confined["writable"] = ["/dev/shm"] if shared else []
        confined["calls"] = compiled_filter(children=True, sockets=shared).hex()
        return confined


def main() -> int:
    """Judge what a request on stdin holds, confined; write the verdicts to stdout as JSON."""
    request = json.load(sys.stdin)
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what evaluators print
    confined = request["confined"]
    confined["calls"] = bytes.fromhex(confined["calls"])
    tempfile.tempdir = confine(confined)  # a package may have looked for another one already
    problems = load_problems(suite_named(request["suite"]), request["configs"], request["limit"])
    json.dump(judged(problems, request["items"], request["texts"], None), answer)
    answer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
