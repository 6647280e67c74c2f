"""Scoring, on finished records, by OpenCompass's evaluators in another process; it can be repeated at any time."""

import functools
import os
import select
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, TypedDict

import msgspec
from msgspec import UNSET
from rich.progress import track

from harness.errors import UserError
from harness.options import UNSAFE_OPTION
from harness.plugins import restore
from harness.records.consistency import KEY
from harness.records.files import as_lines, files_hash, with_helpers
from harness.records.schema import RunRecord
from harness.records.store import Recorder, read_lines, read_meta, write_meta
from harness.sandbox.bubblewrap import choose, not_enforced, whole_process
from harness.sandbox.execute import CORES, Isolation, end, entered
from harness.suites.questions import Questions
from harness.suites.registry import add_questions, suite_named
from harness.suites.spec import Suite

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 600.0  # for a response that is judged apart, with the seconds that OpenCompass needs to start
VERDICTS_BYTES = 2**28


class Found(TypedDict):
    """What `verdicts_of` finds: verdicts and what evaluators said by (method, suite, item), and parts of `Scoring`."""

    rows: list[tuple[str, str, int, bool | None]]
    why: list[tuple[str, str, int, str]]
    sandbox: str
    not_scored: dict[str, str]
    not_enforced: list[str]
    own_objects: dict[str, int]


class Unjudged(UserError):
    """A process of evaluators that gave no verdicts."""

    def __init__(self, reason: str, run: Path) -> None:
        super().__init__(f"scoring failed: {reason}; the records are kept, try: python harness/scoring.py {run}")
        self.reason = reason


def score_run(folder: Path, unsafe: bool = False, pending: bool = False) -> dict[str, Any]:
    """Score items of a run in separate processes and write `correct` into its records. Raises UserError if one fails.

    unsafe: run model-written code even where no sandbox works. pending: only methods and suites without verdicts; else
    all anew, and where a suite cannot be scored now its verdicts are removed, never mixed. Returns run.json's scoring.
    """
    folder = Path(folder).resolve()
    meta = read_meta(folder)  # refused here, if it is damaged, and not in the process of the evaluators
    if not meta.data.get("files"):
        raise UserError(f"{folder}/run.json names no files of problems (data.files), so that nothing can be scored")
    recorder = Recorder(folder)
    unjudged = {item["suite"] for item in recorder.items.values() if item.get("correct") is None or not pending}
    scoring: dict[str, Any] = {"sandbox": "none", "not_scored": {}, "not_enforced": [], "own_objects": {}}
    if pending and not unjudged:
        scoring |= meta.scoring
        write_meta(folder, {"scoring": scoring})
        return scoring
    isolation, before = choose(unsafe).isolation, meta.scoring.get("sandbox", "none")
    if pending and before not in ("none", isolation.name if isolation else "none"):
        pending, unjudged = False, set(meta.config.suites)  # verdicts of one run come from one sandbox
    if pending:
        scoring["sandbox"] = before
        scoring["own_objects"] |= meta.scoring.get("own_objects", {})
        scoring["not_enforced"] += meta.scoring.get("not_enforced", [])
    specs = restored_suites(meta, [suite for suite in meta.config.suites if suite in unjudged])
    apart = [name for name, suite in specs.items() if suite.foreign and suite.runs_code()]
    texts = [
        name for name, suite in specs.items() if suite.foreign and not suite.sandboxes_each() and name not in apart
    ]
    data = str(meta.data.get("folder") or "")
    shown = [str(ROOT), *([data] if Path(data).is_dir() and data else [])]
    own = [name for name in specs if name not in (*apart, *texts)]

    def verdicts_on(suites: list[str]) -> Found:
        if suites is apart:
            return _each_apart(folder, unsafe, pending, suites, shown)
        isolation = choose(unsafe).isolation if suites is texts else None
        return _verdicts(folder, unsafe, pending, suites, isolation, shown)

    for suites in filter(None, (own, texts, apart)):
        found = verdicts_on(suites)
        verdicts = {(method, suite, item): correct for method, suite, item, correct in found["rows"]}
        recorder.score(verdicts, {(method, suite, item): said for method, suite, item, said in found["why"]})
        if found["sandbox"] != "none":
            scoring["sandbox"] = found["sandbox"]
        scoring["not_scored"] |= found["not_scored"]
        scoring["not_enforced"] = list(dict.fromkeys([*scoring["not_enforced"], *found["not_enforced"]]))
        for suite, programs in found["own_objects"].items():
            scoring["own_objects"][suite] = scoring["own_objects"].get(suite, 0) + programs
    write_meta(folder, {"scoring": scoring})
    return scoring


def _verdicts(
    run: Path,
    unsafe: bool,
    pending: bool,
    suites: list[str],
    isolation: Isolation | None = None,
    shown: Sequence[str] = (),
    only: list[dict[str, Any]] | None = None,
) -> Found:
    """What `verdicts_of` finds in another process, of a run or of some of its items, `only`.

    isolation: of the process, None for none; in one it sees the paths `shown`. What it writes is not trusted: it is
    read to a limit, and from a plain file alone. Raises Unjudged if it ends without verdicts, or not in time.
    """
    folder = run
    with tempfile.TemporaryDirectory(prefix="scoring-", ignore_cleanup_errors=True) as scratch, ExitStack() as stack:
        verdicts = Path(scratch) / "verdicts.json"
        options = [str(verdicts), *suites, *(["--pending"] if pending else []), *([UNSAFE_OPTION] if unsafe else [])]
        environment = os.environ | dict.fromkeys(("HF_HOME", "HF_DATASETS_CACHE", "TMPDIR"), scratch)
        environment["TOKENIZERS_PARALLELISM"] = "false"
        wrapper, passed = list[str](), tuple[int, ...]()
        confined = isolation is not None and bool(isolation.wrapper)
        if confined or only:  # a copy, where another user can read it
            folder = Path(scratch) / "run"
            folder.mkdir()
            shutil.copyfile(run / "run.json", folder / "run.json")
            if only:
                (folder / "items.jsonl").write_text(as_lines(only), encoding="utf-8")
            else:
                shutil.copyfile(run / "items.jsonl", folder / "items.jsonl")
            for path in folder.iterdir():
                path.chmod(0o644)
        if isolation is not None and confined:
            whole, user = whole_process(isolation, scratch, shown)
            wrapper, passed = entered(whole, stack)
            options += ["--confined", *([] if user is None else ["--user", str(user)])]
            environment |= {"HOME": scratch, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            [*wrapper, sys.executable, "-m", "harness.sandbox.verdicts", str(folder), *options],
            cwd=scratch,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=passed,
            start_new_session=True,
        )
        said = _last_line(process, SECONDS if only else None)
        if process.returncode:
            if wrapper and "Permission denied" in said:
                said += f"; {', '.join(suites)} is judged by another user: give all users that path (chmod -R o+rX)"
            raise Unjudged(said, run)
        try:
            return _found_in(verdicts)
        except (OSError, ValueError, RecursionError) as error:
            raise Unjudged(f"no verdicts were written ({error})", run) from None


def _last_line(process: subprocess.Popen[bytes], seconds: float | None) -> str:
    """The last line that a process wrote to its pipe of errors, once it ended or, after these seconds, was killed."""
    assert process.stderr is not None
    tail, deadline = b"", None if seconds is None else time.monotonic() + seconds
    poller = select.poll()
    poller.register(process.stderr, select.POLLIN)
    with process.stderr:
        while deadline is None or deadline > time.monotonic():
            if not poller.poll(None if deadline is None else 1000 * max(0.0, deadline - time.monotonic())):
                continue
            if not (chunk := os.read(process.stderr.fileno(), 65536)):
                break
            tail = (tail + chunk)[-4000:]
        else:
            tail += f"\nit took longer than {seconds:g} s".encode()
            end(process)
    process.wait()
    return next((line for line in reversed(tail.decode(errors="replace").splitlines()) if line.strip()), "no message")


def _found_in(path: Path) -> Found:
    """The verdicts in a file that another process wrote. Raises OSError or ValueError for what is not such a file."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode) or state.st_size > VERDICTS_BYTES:
            raise ValueError(f"{path.name} is no file of verdicts")
        return msgspec.json.decode(file.read(VERDICTS_BYTES), type=Found)


def _each_apart(run: Path, unsafe: bool, pending: bool, suites: list[str], shown: Sequence[str]) -> Found:
    """As `_verdicts`, each response in a process and a sandbox that no other response shares.

    One whose process ends without a verdict is wrong, unless an empty response has none either: that raises UserError.
    """
    choice = choose(unsafe)
    if choice.isolation is None:
        return _verdicts(run, unsafe, pending, suites)
    responses: dict[tuple[str, int, str], list[dict[str, Any]]] = {}  # methods often agree
    for row in read_lines(run / "items.jsonl"):
        if row["suite"] in suites and (row.get("correct") is None or not pending):
            responses.setdefault((row["suite"], row["item"], row["text"]), []).append(row)

    def judged(row: dict[str, Any]) -> tuple[bool, str]:
        found = _verdicts(run, unsafe, False, [row["suite"]], choice.isolation, shown, [row])
        return found["rows"] == [(*(row[name] for name in KEY), True)], "; ".join(why[-1] for why in found["why"])[:500]

    @functools.cache
    def check_empty(suite: str) -> None:
        judged(next(rows[0] for rows in responses.values() if rows[0]["suite"] == suite) | {"text": ""})

    def verdict_on(rows: list[dict[str, Any]]) -> tuple[bool, str]:
        try:
            return judged(rows[0])
        except Unjudged as error:
            check_empty(rows[0]["suite"])
            return False, f"its process gave no verdict: {error.reason}"

    with ThreadPool(CORES) as pool:
        tasks = pool.imap(verdict_on, responses.values())
        verdicts = list(track(tasks, "judged apart", len(responses), disable=not sys.stderr.isatty()))
    named = [
        (row["method"], row["suite"], row["item"], *verdict)
        for rows, verdict in zip(responses.values(), verdicts, strict=True)
        for row in rows
    ]
    return {
        "rows": [(*key, verdict) for *key, verdict, _ in named],
        "why": [(*key, why) for *key, _, why in named if why],
        "sandbox": choice.isolation.name,
        "not_scored": {},
        "not_enforced": not_enforced(choice.isolation),
        "own_objects": {},
    }


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
        f"; {suite}: objects or functions of {count} programs compared, equal to nothing else"
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
