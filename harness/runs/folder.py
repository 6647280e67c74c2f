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
from harness.records.environment import TOP, busy_warning, receipt
from harness.records.files import TRACES
from harness.records.schema import SCHEMA, Key, RunConfig, RunRecord
from harness.records.store import config_hash, read_meta, write_meta
from harness.runs.alike import provenance, session_facts, settings, table_differences
from harness.runs.chosen import joined_items
from harness.runs.options import RunOptions
from harness.runs.resolve import resolve

LOCK = ".lock"
LINES = ("items.jsonl", "windows.jsonl", "passes.jsonl", "prompts.jsonl")
RECORDS = ("run.json", TRACES, *LINES, *(f"{name}.gz" for name in LINES))
# Errors of a file system that has no locks, as some network file systems.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
# The most differences in a message.
SHOWN = 6


def continued_options(options: RunOptions) -> RunOptions:
    """The options of a run that --resume continues.

    An option that was not given is taken from run.json. The recorded methods, suites and items
    stay, and those that were given join them.

    Args:
        options: as `harness.options.checked` returns them, with --resume and the run's folder in
            `out`.

    Returns:
        The options of the continued run; the same options if there is no run to continue.

    Raises:
        UserError: the run is damaged, or no items can be added to it.
    """
    if not options.resume or options.out is None or not (options.out / "run.json").exists():
        return options
    meta = read_meta(options.out)
    before = meta.config
    # `checked` leaves the names of the options that were given, whatever their values.
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
    # Resolved once for the keys of its methods and suites: only then is known which are new.
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
    """The limit of a run that --resume continues, never below the one before. Raises UserError if
    it may not change."""
    limit = options.limit
    if before.items is not UNSET:
        # The limit is of the items that are named now.
        return limit
    if limit is not None and before.limit is not None:
        limit = max(limit, before.limit)
    # Items number all problems of the first draw, then of the next: another limit renumbers them.
    if limit != before.limit and len(before.draws) > 1:
        raise UserError(
            f"--resume: {options.out} has several responses to a problem, and its items are"
            f" numbered for --limit {before.limit}; keep it"
        )
    return limit


def _elements(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _suites(meta: RunRecord, names: Iterable[str]) -> tuple[str, ...]:
    """Suites of a run in the form that --suite accepts."""
    elements = []
    for name in names:
        element = name
        questions = meta.config.suites[name].questions
        if questions is not UNSET:
            paths = meta.data["paths"][name]
            columns = {"prompt": questions.prompt, "answer": questions.answer}
            # The judge's path is in `data`: the configuration names its file without the folder.
            arguments = {**columns, "judge": paths["judge"]}
            arguments = {option: value for option, value in arguments.items() if value}
            element = format_call(f"{name}={paths['file']}", arguments)
        elements.append(element)
    return tuple(elements)


def claim_folder(
    out: Path | None, config: RunConfig, resume: bool, overwrite: bool = False
) -> Path:
    """The folder that a run may write to.

    Args:
        out: the folder of --out; None for a new one, named by time and model.
        config: of the run.
        resume: the folder may hold a run with the same settings, which goes on.
        overwrite: the folder may hold any run, whose records will be deleted.

    Raises:
        UserError: the folder holds a run that would be damaged, or records without a run.json.
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
        return runs_folder(TOP) / f"{datetime.now():%Y%m%d-%H%M%S}-{name}"
    if not (out / "run.json").exists():
        for name in RECORDS:
            if (out / name).exists():
                raise UserError(
                    f"{out} has {name} and no run.json: put that back, or choose another --out"
                )
        return out
    # With --overwrite too: a run.json that another program wrote is refused here, not deleted.
    before = read_meta(out).config
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
    """The settings that two configurations do not share and that make tokens or seconds, of the
    methods and suites that both have."""
    return table_differences(settings(before, before.timed), settings(now, before.timed))


def runs_folder(root: Path) -> Path:
    """The default folder of runs: in a checkout of the project, or else in the current folder.

    Args:
        root: the folder with the project's packages, a checkout if it has a pyproject.toml.
    """
    checkout = (root / "pyproject.toml").exists()
    return (root if checkout else Path.cwd()) / "results" / "runs"


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Lock a run's folder against other processes. It is created if need be, and removed again if
    it stays empty.

    Raises:
        UserError: another process has locked it, or it cannot be written.
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
        # Refusing would shut out network file systems, so the user has to take care.
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
    folder: Path,
    config: RunConfig,
    made: dict[str, Any],
    options: Mapping[str, Any] | None = None,
    recorded: Iterable[Key] = (),
) -> list[str]:
    """Write run.json when a session begins: all of it for a new run, or what may have changed.

    Args:
        folder: of the run.
        config: of the run, as it is now.
        made: as `harness.runs.describe.made_with` returns it.
        options: the options that a later --resume takes again.
        recorded: the keys of the recorded responses.

    Returns:
        The differences from the last session that are allowed: commit, packages that make no
        tokens, problems.

    Raises:
        UserError: weights, options, plugins or packages that make tokens have changed, or in a
            timed run the machine; or run.json cannot be written.
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
    before["plugins"] = _used_plugins(meta, before, recorded)
    timed = meta.config.timed
    changed = table_differences(provenance(before, timed), provenance(made, timed))
    if changed:
        ways = "restore it"
        if any(line.startswith("plugins.") for line in changed):
            ways += ", take its methods' lines out of items.jsonl and windows.jsonl"
        raise UserError(
            f"--resume: {folder} was begun with something else, and would mix the two in one table:"
            f" {'; '.join(changed)}; {ways}, or begin a run of its own with another --out"
        )
    parts["data"] = made["data"]
    parts["code"] = made["code"]
    # A session loads what its methods need: models and plugins of earlier ones stay in the record.
    parts["weights"] = {**before["weights"], **made["weights"]}
    plugins = {}
    for plugin in (*before["plugins"], *made.get("plugins", [])):
        plugins[plugin["plugin"]] = plugin
    if plugins:
        parts["plugins"] = list(plugins.values())
    write_meta(folder, parts)
    return table_differences(session_facts(before), session_facts(made))


def _used_plugins(
    meta: RunRecord, before: Mapping[str, Any], recorded: Iterable[Key]
) -> list[dict[str, Any]]:
    """The plugins of a run that its responses depend on."""
    # One whose decoders have no responses may change: so a mistake in them is mended.
    methods = meta.config.methods
    decoders = {methods[method].method for method, _, _ in recorded if method in methods}
    used = []
    for plugin in before.get("plugins", []):
        registered = plugin["registered"]
        if {*registered} != {"decoders"} or decoders & {*registered["decoders"]}:
            used.append(plugin)
    return used


@contextmanager
def new_or_not_at_all(folder: Path, begun: bool, recorded: Collection[object]) -> Iterator[None]:
    """Remove a new run's records if it fails before its first response is recorded.

    A folder with a run.json and no response would make the corrected command need --resume.

    Args:
        folder: of the run.
        begun: whether the folder held this run before.
        recorded: the recorded items, which may become more inside the block.
    """
    try:
        yield
    except UserError:
        if not begun and not recorded:
            remove_records(folder)
        raise


def remove_records(folder: Path) -> None:
    """Delete a run's records and its folders tables, figures and report; other files stay."""
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

    Args:
        folder: of the run.
        device: whose receipt is taken, see `harness.records.environment.receipt`.
        timed: warn on stderr if other programs use the machine at the start.
        more: returns further fields of the entry; called at the start and at the end.
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
        # A full disk has its own message already, which this one would hide.
        with suppress(UserError):
            write_meta(folder, {"sessions": [*before, entry]})
