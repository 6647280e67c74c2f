"""What a run has from outside, found again when it is scored: suites of plugins, and files of questions."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from msgspec import UNSET

from harness.errors import UserError
from harness.plugins import restore
from harness.records.hashes import file_hash
from harness.records.schema import RunRecord
from harness.suites.questions import Questions
from harness.suites.registry import add_questions


def restore_suites(meta: RunRecord, suites: Collection[str]) -> None:
    """Make those of a run's suites that are from outside known again.

    Raises UserError, in one line, if a plugin, a file of questions or a judge is gone, or is not what it was.
    """
    restore(meta.plugins, suites)
    for name in suites:
        own = meta.config.suites[name].questions if name in meta.config.suites else UNSET
        if own is UNSET:
            continue
        paths = (meta.data.get("paths") or {}).get(name) or {}
        questions = Questions(Path(paths.get("file", "")), own.prompt, own.answer, paths.get("judge", own.judge))
        _check(name, "file", questions.file, own.sha256)
        if questions.judge_file is not None and own.judge_sha256 is not UNSET:
            _check(name, "judge", questions.judge_file, own.judge_sha256)
        add_questions(name, questions)


def _check(suite: str, what: str, path: Path, sha256: str) -> None:
    if not path.is_file():
        raise UserError(f"the {what} of suite {suite} is gone: {path}; put it back")
    if file_hash(path) != sha256:
        raise UserError(
            f"the {what} of suite {suite} is not what it was when the run was made: {path} has another SHA-256 than "
            "run.json; restore it, or make a run of its own"
        )
