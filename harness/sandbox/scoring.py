"""Scoring a finished run, by OpenCompass's evaluators; `correct` is written here alone, and can be
at any time."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from harness.errors import UserError
from harness.plugins import restore
from harness.records.files import code_hash, files_hash
from harness.records.schema import Key
from harness.records.store import Recorder, read_meta, write_meta
from harness.sandbox.program import Sandbox, choose
from harness.suites.questions import Questions
from harness.suites.registry import add_questions, suite_named, write_generated
from harness.suites.spec import Suite

if TYPE_CHECKING:
    from harness.runs.problems import Problems

Group = tuple[str, int]  # method, draw
Verdict = tuple[bool, str]  # whether a response is right, and what the evaluator says of it
HOW = {
    "landlock": "every model-written program confined by Landlock",
    "bubblewrap": "every model-written program in a bubblewrap sandbox",
    "unsafe": "model-written programs UNPROTECTED, for no sandbox works here",
}


def score_run(
    folder: Path,
    unsafe: bool = False,
    pending: bool = False,
    loaded: Mapping[str, list[Problems]] | None = None,
) -> dict[str, Any]:
    """Judge the responses of a run and write `correct` into its records.

    Args:
        folder: of the run.
        unsafe: run model-written code even where no sandbox works.
        pending: only methods and suites with responses that have no verdict; else all anew.
        loaded: problems by suite, of the process that decoded them; others are loaded.

    Returns:
        `scoring` of run.json: `sandbox` (one name, or two), `not_scored` (suites, with the reason),
        `judges` (hashes of users' judges), `changed` (suites whose problems are not those that the
        run was made with).

    Raises:
        UserError: the records are damaged.
    """
    folder = Path(folder).resolve()
    with tempfile.TemporaryDirectory(prefix="scoring-") as scratch:
        scorer = Scorer(folder, unsafe, Path(scratch), loaded or {})
        scorer.score(pending)
    write_meta(folder, {"scoring": scorer.report})
    return scorer.report


class Scorer:
    """Judges the responses of a run, suite by suite; `report` is what `score_run` returns."""

    def __init__(
        self, folder: Path, unsafe: bool, scratch: Path, loaded: Mapping[str, list[Problems]]
    ) -> None:
        self.meta = read_meta(folder)
        self.recorder = Recorder(folder)
        self.unsafe = unsafe
        self.scratch = scratch
        self.loaded = loaded
        self.report: dict[str, Any] = {
            "sandbox": "none",
            "not_scored": {},
            "judges": {},
            "changed": {},
        }

    def score(self, pending: bool) -> None:
        """Judge all suites; one that cannot be judged is in the report, with the reason, and keeps
        its verdicts."""
        if pending:
            self.report |= {
                name: value for name, value in self.meta.scoring.items() if name in self.report
            }
        for suite, groups in self._groups(pending).items():
            verdicts: dict[Key, Verdict] = {}
            self.report["not_scored"].pop(suite, None)
            try:
                verdicts = self._score_suite(self._restored(suite), groups)
            except UserError as error:
                self.report["not_scored"][suite] = str(error)
            except Exception as error:  # whatever an evaluator makes of a text
                self.report["not_scored"][suite] = (
                    f"its evaluator fails: {type(error).__name__}: {error}"
                )
            self.recorder.score(verdicts)

    def _groups(self, pending: bool) -> dict[str, dict[Group, list[Key]]]:
        """The responses to judge by suite, method and draw, so that a group has every problem
        once."""
        groups: dict[str, dict[Group, list[Key]]] = {}
        draws = len(self.meta.config.draws)
        for key, item in self.recorder.items.items():
            method, suite, number = key
            if suite not in self.meta.config.suites or method not in self.meta.config.methods:
                continue
            if pending and item.get("correct") is not None:
                continue
            if not isinstance(item.get("text"), str):
                raise UserError(
                    f"{method} {suite} {number} has no text to judge; the record is damaged"
                )
            items = self.meta.files.get(suite, {}).get("items")
            draw = number // (items // draws) if items and draws > 1 else 0
            groups.setdefault(suite, {}).setdefault((method, draw), []).append(key)
        return groups

    def _score_suite(self, suite: Suite, groups: dict[Group, list[Key]]) -> dict[Key, Verdict]:
        """Verdicts on the responses to a suite, judged once where methods agree. Raises UserError
        if they cannot be."""
        sandbox = None
        if suite.runs_programs() or suite.is_confined():
            sandbox = self._sandbox()
        data, problems = self._problems(suite)
        judge = self._judge(suite, data, problems, sandbox)
        golds = list(chain.from_iterable(part.golds for part in problems))
        known: dict[tuple[int, str], Verdict] = {}
        verdicts: dict[Key, Verdict] = {}
        for (_, draw), keys in groups.items():
            before = draw * len(golds)  # items of other seeds
            responses = {key: (key[2] - before, self.recorder.items[key]["text"]) for key in keys}
            self._check_range([number for number, _ in responses.values()], len(golds))
            new = [
                response for response in dict.fromkeys(responses.values()) if response not in known
            ]
            numbers = [number for number, _ in new]
            texts = [text for _, text in new]
            known |= zip(new, judge(numbers, texts), strict=True)
            for key, response in responses.items():
                self._note_reference(key, golds[response[0]])
                verdicts[key] = known[response]
        return verdicts

    def _judge(
        self, suite: Suite, data: Path, problems: list[Problems], sandbox: Sandbox | None
    ) -> Callable[[list[int], list[str]], list[Verdict]]:
        """What judges responses of a method, by their numbers and texts: confined, or here."""
        # OpenCompass takes seconds to import.
        from harness.sandbox.verdicts import ConfinedEvaluator, judged

        if sandbox is None or sandbox.name == "unsafe" or not suite.is_confined():
            return partial(judged, problems, sandbox=sandbox)
        configs = [part.config for part in problems]
        limit = self.meta.config.limit
        return ConfinedEvaluator(suite.name, configs, limit, data, sandbox).judged

    def _sandbox(self) -> Sandbox:
        """The sandbox of a suite's programs, which the report names. Raises UserError where there
        is none."""
        choice = choose(self.unsafe)
        if choice.sandbox is None:
            raise UserError(choice.missing)
        names = {*self.report["sandbox"].split(", "), choice.sandbox.name} - {"none"}
        self.report["sandbox"] = ", ".join(sorted(names))
        return choice.sandbox

    def _problems(self, suite: Suite) -> tuple[Path, list[Problems]]:
        """The folder of a suite's problems, and the problems. Raises UserError for a file that is
        gone or malformed."""
        from harness.runs.problems import load_problems

        config = self.meta.config
        generated = isinstance(config.data, str) and suite.questions is None
        data = self.scratch if generated else self._data_folder()
        if suite.name in self.loaded:
            return data, self.loaded[suite.name]
        if generated:
            write_generated(data, str(config.data), config.limit, [suite])
        digest = files_hash(suite.files(generated, data))
        before = self.meta.files.get(suite.name, {}).get("sha256")
        if before not in (None, digest):
            self._note(suite.name, "its file", digest)
        return data, load_problems(suite, suite.datasets(generated, data), config.limit)

    def _data_folder(self) -> Path:
        """Where the problems lie: as recorded, or on another machine in COMPASS_DATA_CACHE."""
        recorded = Path(str(self.meta.data.get("folder") or ""))
        elsewhere = os.environ.get("COMPASS_DATA_CACHE")
        if elsewhere and not recorded.is_dir():
            return Path(elsewhere)
        return recorded

    def _check_range(self, numbers: list[int], problems: int) -> None:
        beyond = [number for number in numbers if number >= problems]
        if beyond:
            raise UserError(
                f"the file has {problems} problems, and the run has item {beyond[0]}; put its file"
                " back"
            )

    def _note_reference(self, key: Key, gold: str) -> None:
        """Record the reference that a response is judged by, and note one that changed."""
        item = self.recorder.items[key]
        if item.get("gold") not in (None, gold):
            self.report["changed"].setdefault(key[1], "other references")
        item["gold"] = gold

    def _restored(self, suite: str) -> Suite:
        """A suite of the run; one from outside is made known again. Raises UserError if its file is
        gone."""
        restore(self.meta.plugins, [suite])
        recorded = self.meta.config.suites[suite].questions
        if recorded is UNSET:
            return suite_named(suite)
        paths = (self.meta.data.get("paths") or {}).get(suite) or {}
        file = Path(paths.get("file", ""))
        questions = Questions(
            file, recorded.prompt, recorded.answer, paths.get("judge", recorded.judge)
        )
        for path in filter(None, [questions.file, questions.judge_file]):
            if not path.is_file():
                raise UserError(f"{path} is gone; put it back, then score the run again")
        if questions.judge_file is not None:
            digest = code_hash(questions.judge_file)
            self.report["judges"][suite] = digest
            if recorded.judge_sha256 not in (UNSET, digest):
                self._note(suite, "its judge", digest)
        add_questions(suite, questions)
        return suite_named(suite)

    def _note(self, suite: str, what: str, digest: str) -> None:
        """Note, and say, that something is not what the run was made with."""
        self.report["changed"][suite] = f"{what}: {digest[:16]}"
        print(
            f"{suite}: {what} is not what the run was made with; verdicts are of {digest[:16]}",
            file=sys.stderr,
        )


def describe_scoring(scoring: dict[str, Any]) -> str:
    """What a scoring did with model-written code, and what it left out; a line each."""
    names = [name for name in scoring["sandbox"].split(", ") if name != "none"]
    programs = "; ".join(HOW[name] for name in names) or "no model-written program was run"
    text = f"{programs}; judges of your own ran unconfined" if scoring.get("judges") else programs
    lines = [f"scored: {text}"]
    lines += [f"not scored: {suite}: {reason}" for suite, reason in scoring["not_scored"].items()]
    return "\n".join(lines)
