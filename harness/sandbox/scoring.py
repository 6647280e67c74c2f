"""Scoring, on finished records, by OpenCompass's evaluators in another process; it can be repeated at any time."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from msgspec import UNSET

from harness.errors import UserError
from harness.options import UNSAFE_OPTION
from harness.plugins import restore
from harness.records.files import files_hash, with_helpers
from harness.records.schema import RunRecord
from harness.records.store import Recorder, read_meta, write_meta
from harness.sandbox.bubblewrap import choose, whole_process
from harness.sandbox.execute import entered
from harness.suites.questions import Questions
from harness.suites.registry import add_questions, suite_named
from harness.suites.spec import Suite

ROOT = Path(__file__).resolve().parents[2]


def score_run(folder: Path, unsafe: bool = False, pending: bool = False) -> dict[str, Any]:
    """Score items of a run in separate processes and write `correct` into its records. Raises UserError if one fails.

    unsafe: run model-written code even where no sandbox works. pending: only methods and suites without verdicts; else
    all anew, and where a suite cannot be scored now its verdicts are removed, never mixed. Returns run.json's scoring.
    """
    folder = Path(folder).resolve()
    meta = read_meta(folder)  # refused here, if it is damaged, and not in the process of the evaluators
    recorder = Recorder(folder)
    unjudged = {item["suite"] for item in recorder.items.values() if item.get("correct") is None or not pending}
    scoring: dict[str, Any] = {"sandbox": "none", "not_scored": {}, "not_enforced": [], "own_objects": {}}
    if pending and not unjudged:
        scoring |= meta.scoring
        write_meta(folder, {"scoring": scoring})
        return scoring
    scoring["own_objects"] |= meta.scoring.get("own_objects", {}) if pending else {}
    specs = restored_suites(meta, [suite for suite in meta.config.suites if suite in unjudged])
    together = [name for name, suite in specs.items() if suite.foreign and not suite.sandboxes_each()]
    for suites in ([name for name in specs if name not in together], together):
        if not suites:
            continue
        data = str(meta.data.get("folder") or "")
        shown = [str(ROOT), *([data] if Path(data).is_dir() and data else [])]
        found = _verdicts(folder, suites, unsafe, pending, shown if suites is together else None)
        verdicts = {(method, suite, item): correct for method, suite, item, correct in found["rows"]}
        recorder.score(verdicts, {(method, suite, item): said for method, suite, item, said in found["why"]})
        scoring["sandbox"] = found["sandbox"]
        scoring["not_scored"] |= found["not_scored"]
        missing = [f"{', '.join(suites)}: one sandbox for all programs"] if suites is together else []
        scoring["not_enforced"] = list(dict.fromkeys([*scoring["not_enforced"], *found["not_enforced"], *missing]))
        for suite, programs in found["own_objects"].items():
            scoring["own_objects"][suite] = scoring["own_objects"].get(suite, 0) + programs
    write_meta(folder, {"scoring": scoring})
    return scoring


def _verdicts(run: Path, suites: list[str], unsafe: bool, pending: bool, shown: list[str] | None) -> dict[str, Any]:
    """What `verdicts_of` finds in another process, in a sandbox that sees the paths `shown` (None: in none)."""
    folder = run
    with tempfile.TemporaryDirectory(prefix="scoring-") as scratch, ExitStack() as stack:
        verdicts = Path(scratch) / "verdicts.json"
        options = [str(verdicts), *suites, *(["--pending"] if pending else []), *([UNSAFE_OPTION] if unsafe else [])]
        environment = os.environ | dict.fromkeys(("HF_HOME", "HF_DATASETS_CACHE", "TMPDIR"), scratch)
        environment["TOKENIZERS_PARALLELISM"] = "false"
        wrapper, passed = list[str](), tuple[int, ...]()
        isolation = None if shown is None else choose(unsafe).isolation
        if shown is not None and isolation is not None and isolation.wrapper:
            whole, user = whole_process(isolation, scratch, shown)
            wrapper, passed = entered(whole, stack)
            options += ["--confined", *([] if user is None else ["--user", str(user)])]
            environment |= {"HOME": scratch, "PYTHONPATH": str(ROOT)}
            folder = Path(scratch) / "run"
            folder.mkdir()
            for name in ("run.json", "items.jsonl"):  # where another user can read it
                shutil.copyfile(run / name, folder / name)
                (folder / name).chmod(0o644)
        command = [*wrapper, sys.executable, "-m", "harness.sandbox.verdicts", str(folder), *options]
        done = subprocess.run(
            command, cwd=scratch, env=environment, capture_output=True, text=True, check=False, pass_fds=passed
        )
        if done.returncode != 0 or not verdicts.exists():
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            if wrapper and "Permission denied" in reason:
                reason += f"; {', '.join(suites)} is judged by another user: give all users that path (chmod -R o+rX)"
            raise UserError(f"scoring failed: {reason}; the records are kept, try: python harness/scoring.py {run}")
        return json.loads(verdicts.read_text(encoding="utf-8"))


def describe_scoring(scoring: dict[str, Any]) -> str:
    """What a scoring did with model-written code, in one line."""
    if scoring["not_scored"]:
        reasons = "; ".join(dict.fromkeys(scoring["not_scored"].values()))
        return f"scored, but not {', '.join(scoring['not_scored'])}: {reasons}"
    containment = {
        "bubblewrap": "every model-written program in its own sandbox (bubblewrap)",
        "unsafe": "model-written programs UNPROTECTED, for no sandbox works here",
        "none": "no model-written program was run",
    }
    open_to = "".join(f"; {each}" for each in scoring.get("not_enforced", []))
    odd = "".join(
        f"; {suite}: objects of classes that {count} programs define compared, equal to nothing else"
        for suite, count in scoring.get("own_objects", {}).items()
        if count
    )
    return f"scored: {containment[scoring['sandbox']]}{open_to}{odd}"


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
