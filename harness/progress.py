"""The progress of a run on the screen: items done, time left, accuracy so far per method."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from types import TracebackType
from typing import Any

from mmengine.config import ConfigDict
from opencompass.registry import ICL_EVALUATORS, TEXT_POSTPROCESSORS
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from harness.inference import SuiteJob
from harness.records import Recorder
from harness.suites import SUITES

REDRAW = 0.2  # seconds between two drawings


class RunProgress:
    """A context manager that draws the bar; suites whose scoring would execute code show no accuracy until scored."""

    def __init__(self, jobs: list[SuiteJob], config: dict[str, Any], recorder: Recorder) -> None:
        total = sum(len(job.prompts) * len(job.models) for job in jobs)
        columns = (TextColumn("{task.fields[suite]}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        # No thread of its own: it would draw while decoding is timed.
        self._progress = Progress(*columns, TextColumn("{task.fields[accuracy]}"), auto_refresh=False)
        self._drawn = 0.0
        self._task = self._progress.add_task("", total=total, completed=len(recorder.items), suite="", accuracy="")
        self._labels = {name: method["label"] for name, method in config["methods"].items()}

    def __enter__(self) -> RunProgress:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def finished(self, job: SuiteJob) -> Callable[[str, int, str], None]:
        """What to call after each item of a job: (method, item, text)."""
        judge = None if SUITES[job.suite].executes else QuickJudge(job)
        verdicts: dict[str, list[bool]] = defaultdict(list)

        def update(method: str, item: int, text: str) -> None:
            if judge is not None:
                verdicts[method].append(judge(item, text))
            shown = "  ".join(f"{self._labels[m]} {100 * sum(v) / len(v):.0f}%" for m, v in verdicts.items())
            due = time.monotonic() - self._drawn > REDRAW
            self._drawn = time.monotonic() if due else self._drawn
            self._progress.update(self._task, advance=1, suite=SUITES[job.suite].title, accuracy=shown, refresh=due)

        return update


class QuickJudge:
    """OpenCompass's verdict on one response at once, for the screen; what counts comes from scoring."""

    def __init__(self, job: SuiteJob) -> None:
        evaluation = ConfigDict(job.config["eval_cfg"])
        self._evaluator = ICL_EVALUATORS.build(evaluation["evaluator"])
        self._process_text = _processor(evaluation.get("pred_postprocessor"))
        self._process_gold = _processor(evaluation.get("dataset_postprocessor"))
        self._job, self._golds = job, job.golds
        self._wants_rows = "test_set" in type(self._evaluator).score.__annotations__

    def __call__(self, item: int, text: str) -> bool:
        rows = {"test_set": self._job.dataset.test.select([item])} if self._wants_rows else {}
        predictions, references = [self._process_text(text)], [self._process_gold(self._golds[item])]
        result = self._evaluator.score(predictions=predictions, references=references, **rows)
        return bool(result["details"][0]["correct"])


def _processor(config: dict[str, str] | None) -> Callable[[str], str]:
    if config is None:
        return lambda text: text
    process: Callable[[str], str] = TEXT_POSTPROCESSORS.get(config["type"])
    return process
