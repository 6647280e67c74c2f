"""A run's folder: who may write there, what its run.json says, and how it goes on."""

import errno
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from msgspec import UNSET, to_builtins

from harness.elements import format_call
from harness.errors import UserError
from harness.options import checked
from harness.records.environment import busy_warning, receipt
from harness.records.files import TRACES
from harness.records.schema import SCHEMA, RunConfig, RunRecord
from harness.records.store import config_hash, read_meta, write_meta
from harness.runs.alike import made_of, noted, settings, unlike
from harness.runs.chosen import joined_items
from harness.runs.options import RunOptions
from harness.runs.resolve import resolve

ROOT = Path(__file__).resolve().parents[2]
LOCK = ".lock"
LINES = ("items.jsonl", "windows.jsonl", "passes.jsonl", "prompts.jsonl")
RECORDS = ("run.json", TRACES, *LINES, *(f"{name}.gz" for name in LINES))
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # of a file system
SHOWN = 6  # differences in a message


def grown(options: RunOptions) -> RunOptions:
    """Options of a run that goes on: what was left out is the run's, and its methods, suites and
    items stay.

    Args:
        options: of `harness.options.checked`, with --resume, and the folder of the run in `out`.

    Raises:
        UserError: the folder holds a damaged run, or one whose items cannot be more.
    """
    if not options.resume or options.out is None or not (options.out / "run.json").exists():
        return options
    meta = read_meta(options.out)
    before = meta.config
    named = vars(options)["named"]
    recorded = vars(checked(RunOptions, meta.options))
    changes = {name: recorded[name] for name in meta.options if name not in named}
    options = replace(options, **changes)
    methods = _elements(options.methods) if "methods" in named else tuple(before.methods)
    suites = _elements(options.suite) if "suite" in named else _suites(meta, before.suites)
    plugins = [plugin.plugin for plugin in meta.plugins if plugin.plugin not in options.plugin]
    if options.items is not None and before.items is UNSET:
        raise UserError(
            f"--resume: {options.out} has its first items, or all; choose another --out for --items"
        )
    options = replace(
        options,
        limit=_grown_limit(options, before),
        samples=max(options.samples, recorded["samples"]),
        threads=options.threads or before.threads,
        methods=methods,
        suite=suites,
        plugin=(*options.plugin, *plugins),
    )
    config = resolve(options).config
    if before.items is not UNSET:
        items = joined_items(before.items, config.items or {})
        options = replace(options, items=items, limit=None)
    return replace(
        options,
        methods=(*_missing(before.methods, config.methods), *methods),
        suite=(*_suites(meta, _missing(before.suites, config.suites)), *suites),
    )


def _missing(before: Iterable[str], now: Collection[str]) -> list[str]:
    return [name for name in before if name not in now]


def _grown_limit(options: RunOptions, before: RunConfig) -> int | None:
    """The limit of a run that goes on, never below the one before. Raises UserError if it may not
    change."""
    limit = options.limit
    if before.items is not UNSET:
        return limit  # of the items that are named now
    if limit is not None and before.limit is not None:
        limit = max(limit, before.limit)
    if limit != before.limit and len(before.draws) > 1:
        raise UserError(
            f"--resume: {options.out} has several responses to a problem, and its items are"
            f" numbered for --limit {before.limit}; keep it"
        )
    return limit


def _elements(given: Any) -> tuple[Any, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _suites(meta: RunRecord, names: Iterable[str]) -> tuple[str, ...]:
    """Suites of a run as --suite takes them."""
    elements = []
    for name in names:
        element = name
        questions = meta.config.suites[name].questions
        if questions is not UNSET:
            paths = meta.data["paths"][name]
            columns = {"prompt": questions.prompt, "answer": questions.answer}
            arguments = {**columns, "judge": paths["judge"]}
            arguments = {option: value for option, value in arguments.items() if value}
            element = format_call(f"{name}={paths['file']}", arguments)
        elements.append(element)
    return tuple(elements)


def claim_folder(
    out: Path | None, config: RunConfig, resume: bool, overwrite: bool = False
) -> Path:
    """The folder for a run: new; with `resume` one whose responses it may keep; with `overwrite`
    one that may go.

    Raises:
        UserError: anything else, so that no run's records are written over unless that is wanted.
    """
    if resume and overwrite:
        raise UserError(
            "--resume goes on with the run in --out, --overwrite begins anew: give one of them"
        )
    if out is None:
        if resume or overwrite:
            option = "--resume" if resume else "--overwrite"
            raise UserError(f"{option} needs --out, the folder of the run")
        name = next(iter(config.models["base"].values())).rstrip("/").split("/")[-1]
        return runs_folder(ROOT) / f"{datetime.now():%Y%m%d-%H%M%S}-{name}"
    if not (out / "run.json").exists():
        for name in RECORDS:
            if (out / name).exists():
                raise UserError(
                    f"{out} has {name} and no run.json: put that back, or choose another --out"
                )
        return out
    before = read_meta(out).config  # a run.json of somebody else is not overwritten
    if resume:
        _check_settings(out, before, config)
    elif not overwrite:
        raise UserError(
            f"{out} already holds a run; add --resume to go on with it, --overwrite to begin anew,"
            " or another --out"
        )
    return out


def _check_settings(out: Path, before: RunConfig, now: RunConfig) -> None:
    """Raise UserError if a run would go on with settings that it was not begun with."""
    changed = unlike_settings(before, now)
    if changed:
        raise UserError(
            f"--resume: {out} has responses made with other settings:"
            f" {'; '.join(changed[:SHOWN])}; choose another --out"
        )


def unlike_settings(before: RunConfig, now: RunConfig) -> list[str]:
    """What makes tokens or seconds and differs between two configurations, of the methods and
    suites that both have."""
    return unlike(settings(before, before.timed), settings(now, before.timed))


def runs_folder(root: Path) -> Path:
    """Where runs go: below a checkout of the project, or where an installed copy is used.

    Args:
        root: the folder that has the project's packages.
    """
    checkout = (root / "pyproject.toml").exists()
    return (root if checkout else Path.cwd()) / "results" / "runs"


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a run's folder, made if need be, against other processes; a folder that stayed empty
    goes again.

    Raises UserError if another process holds it, or if it cannot be written.
    """
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise UserError(
            f"another process is working on {folder}; wait for it, or choose another --out"
        ) from error
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise UserError(
                f"cannot write to {folder}: {error.strerror}; choose another --out"
            ) from error
        print(
            f"warning: {folder} lies where files cannot be locked; start one process there at a"
            " time",
            file=sys.stderr,
        )
    try:
        yield
    finally:
        lock.release()
        if all(path.name == LOCK for path in folder.iterdir()):
            (folder / LOCK).unlink(missing_ok=True)
            folder.rmdir()


def begin_meta(
    folder: Path, config: RunConfig, made: dict[str, Any], options: Mapping[str, Any] | None = None
) -> list[str]:
    """Write run.json; of a run that goes on, the configuration and what it is made with now.

    Args:
        made: as `harness.runs.describe.made_with` gives it.
        options: that were given, which --resume takes again.

    Returns:
        What is not as it was and may differ: commit, packages that make no tokens, problems.

    Raises:
        UserError: weights, options, plugins, packages or a machine that make tokens or seconds are
            not what they were; or run.json cannot be written.
    """
    parts: dict[str, Any] = {
        "config": config.to_json(),
        "config_hash": config_hash(config),
        "options": dict(options or {}),
    }
    if not (folder / "run.json").exists():
        created = datetime.now(UTC).isoformat(timespec="seconds")
        begun = {"schema": SCHEMA, "name": folder.name, "created": created}
        write_meta(folder, {**begun, **parts, **made})
        return []
    meta = read_meta(folder)
    before = to_builtins(meta)
    timed = meta.config.timed
    changed = unlike(made_of(before, timed), made_of(made, timed))
    if changed:
        raise UserError(
            f"--resume: {folder} was begun with something else, and would mix the two in one table:"
            f" {'; '.join(changed)}; restore it, or begin a run of its own with another --out"
        )
    parts["data"] = made["data"]
    parts["code"] = made["code"]
    parts["weights"] = {**before["weights"], **made["weights"]}
    plugins = {}
    for plugin in (*before.get("plugins", []), *made.get("plugins", [])):
        plugins[plugin["plugin"]] = plugin
    if plugins:
        parts["plugins"] = list(plugins.values())
    write_meta(folder, parts)
    return unlike(noted(before), noted(made))


@contextmanager
def new_or_not_at_all(folder: Path, begun: bool, recorded: Collection[object]) -> Iterator[None]:
    """Take back the records of a run that was not begun before, if not even its first response was
    recorded.

    begun: whether it was. recorded: the items that are.
    """
    try:
        yield
    except UserError:
        if not begun and not recorded:
            remove_records(folder)
        raise


def remove_records(folder: Path) -> None:
    """Delete what a run records, and its folders of tables, figures and report; other files
    stay."""
    for name in RECORDS:
        (folder / name).unlink(missing_ok=True)
    for name in ("tables", "figures", "report"):
        shutil.rmtree(folder / name, ignore_errors=True)


@contextmanager
def session(
    folder: Path, device: str, timed: bool = True, more: Callable[[], dict[str, Any]] = dict
) -> Iterator[None]:
    """One entry of `sessions` in run.json: {"start": receipt, "end": receipt}; a kill leaves no
    end.

    timed: warn on stderr if others use the machine when it starts. more: what else the entry has,
    at the start and at the end.
    """
    start = receipt(device)
    warning = busy_warning(start) if timed else None
    if warning:
        print(f"{warning}, or --untimed", file=sys.stderr)
    before = read_meta(folder).sessions
    entry = {"start": start, "end": None, **more()}
    write_meta(folder, {"sessions": [*before, entry]})
    try:
        yield
    finally:
        entry = {"start": start, "end": receipt(device), **more()}
        with suppress(UserError):  # a full disk has its own message already
            write_meta(folder, {"sessions": [*before, entry]})
