"""A run from its record: its configuration, suites and decoders again, those from outside made known once more."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from msgspec import UNSET

from harness.errors import UserError
from harness.outside import with_helpers
from harness.plugins import restore
from harness.records.files import files_hash
from harness.records.schema import RunConfig, RunRecord
from harness.runs.resolve import ResolvedRun
from harness.suites.questions import Questions
from harness.suites.registry import add_questions, suite_named
from harness.suites.spec import Suite
from model_wrappers.decoders import decoder_named


def recorded(config: RunConfig, data: dict[str, Any]) -> ResolvedRun:
    """A run from its record; data: that part of run.json.

    Raises UserError or ValueError for a suite or a decoder that is not known here.
    """
    decoders = {name: decoder_named(method.method) for name, method in config.methods.items()}
    suites = {suite: suite_named(suite) for suite in config.suites}
    return ResolvedRun(config, suites, decoders, None if config.generated else Path(data["folder"]))


def restored_suites(meta: RunRecord, suites: Collection[str]) -> dict[str, Suite]:
    """These suites of a recorded run, by name; those from outside are made known again.

    Raises UserError, in one line, if a plugin, a file of questions or a judge is gone, or is not what it was.
    """
    restore(meta.plugins, suites)
    for name in suites:
        own = meta.config.suites[name].questions if name in meta.config.suites else UNSET
        if own is UNSET:
            continue
        paths = (meta.data.get("paths") or {}).get(name) or {}
        questions = Questions(Path(paths.get("file", "")), own.prompt, own.answer, paths.get("judge", own.judge))
        _check_unchanged(name, "file", [questions.file], own.sha256)
        if questions.judge_file is not None and own.judge_sha256 is not UNSET:
            _check_unchanged(name, "judge", with_helpers(questions.judge_file), own.judge_sha256)
        add_questions(name, questions)
    return {name: suite_named(name) for name in suites}


def _check_unchanged(suite: str, what: str, paths: list[Path], sha256: str) -> None:
    path = paths[0]
    if not path.is_file():
        raise UserError(f"the {what} of suite {suite} is gone: {path}; put it back")
    if files_hash(paths) != sha256:
        raise UserError(
            f"the {what} of suite {suite} is not what it was when the run was made: {path} has another SHA-256 than "
            "run.json; restore it, or make a run of its own"
        )
