"""A run's folder: who may write there, what its run.json says, and whether sessions and workers are alike."""

import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from huggingface_hub import try_to_load_from_cache
from msgspec import to_builtins

from harness.errors import UserError
from harness.plugins import used_by
from harness.records.consistency import differences
from harness.records.environment import busy_warning, describe, receipt
from harness.records.files import BESIDE, TRACES, WEIGHTS, files_hash, model_hashes
from harness.records.schema import SCHEMA, RunConfig, RunRecord
from harness.records.store import config_hash, read_meta, write_meta
from harness.runs.resolve import ResolvedRun
from model_wrappers.backbones.model import Backbone
from model_wrappers.decoders import Decoder
from model_wrappers.options import convert_options

RUNS = Path(__file__).resolve().parents[2] / "results" / "runs"
LOCK = ".lock"
LINES = ("items.jsonl", "windows.jsonl", "passes.jsonl", "prompts.jsonl")
RECORDS = ("run.json", TRACES, *LINES, *(f"{name}.gz" for name in LINES))
NAMED = 6  # differences of configurations in a message
SAME = ("commit", "version", "python", "packages")  # of the environment, what sessions of a run have in common
SAME_MACHINE = ("platform", "cpu", "cpu_capability", "gpu")  # and where seconds are for comparison
BOTH = " and "  # between the names of unlike devices


def claim_folder(out: Path | None, config: RunConfig, resume: bool, overwrite: bool = False) -> Path:
    """The folder for a run: new, with `resume` one of the same configuration, with `overwrite` one whose run may go.

    Raises UserError for anything else, so that nothing is written over unless that is told.
    """
    again = f"--{'resume' if resume else 'overwrite'}"
    if out is None and not (resume or overwrite):
        name = next(iter(config.models["base"].values())).rstrip("/").split("/")[-1]
        return RUNS / f"{datetime.now():%Y%m%d-%H%M%S}-{name}"
    if resume and overwrite:
        wrong = "--resume goes on with the run in --out, --overwrite begins anew: give one of them"
    elif out is None:
        wrong = f"{again} needs --out, the folder of the run"
    elif not (out / "run.json").exists():
        if not resume and (not out.exists() or (out.is_dir() and all(path.name == LOCK for path in out.iterdir()))):
            return out
        wrong = f"{out} exists and holds no run; choose another --out"
        if resume:
            wrong = f"--resume: {out} holds no run (run.json is missing); leave --resume out to begin one"
    elif overwrite:
        read_meta(out)  # a run.json of somebody else is not overwritten
        if not (out / "speed" / "run.json").exists():
            return out
        wrong = f"--overwrite: {out}/speed holds the timed part of the run; move it away first"
    elif resume:
        changed = differences(read_meta(out).config.to_json(), config.to_json())
        if not changed:
            return out
        more = [f"and {len(changed) - NAMED} more"] if len(changed) > NAMED else []
        named = "; ".join(changed[:NAMED] + more)
        wrong = f"--resume with another configuration than {out} has: {named}; give the options that it was begun with"
    else:
        wrong = f"{out} already holds a run; add --resume to go on with it, --overwrite to begin anew, or another --out"
    raise UserError(wrong)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a run's folder, made if need be, against other processes; a folder that stayed empty goes again.

    Raises UserError if another process holds it, or if it cannot be written.
    """
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise UserError(f"another process is working on {folder}; wait for it, or choose another --out") from error
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}; choose another --out") from error
    try:
        yield
    finally:
        lock.release()
        if all(path.name == LOCK for path in folder.iterdir()):
            (folder / LOCK).unlink(missing_ok=True)
            folder.rmdir()


def describe_data(run: ResolvedRun, data: Path) -> dict[str, Any]:
    """The data part of run.json: where it came from, and each suite's file with its SHA-256.

    paths: where files of questions and their judges lie, so that they are found when the run is scored.
    """
    config = run.config
    files = {name: suite.files(config.generated, data) for name, suite in run.suites.items()}
    own = {name: suite.questions for name, suite in run.suites.items() if suite.questions is not None}
    lie = {suite: {"file": str(questions.file), "judge": questions.judge} for suite, questions in own.items()}
    folder = "" if own.keys() == config.suites.keys() else str(data.resolve())
    return {
        "folder": config.data if config.generated else folder,
        "files": {suite: {"name": paths[0].name, "sha256": files_hash(paths)} for suite, paths in files.items()},
        **({"paths": lie} if lie else {}),
    }


def made_with(run: ResolvedRun, backbones: dict[str, Backbone], data: dict[str, Any]) -> dict[str, Any]:
    """What a run is made with, as run.json has it: environment, weights, data, options, plugins.

    data: as `describe_data` says. Of the process that decodes: its machine, and the models that it loaded.
    """
    config = run.config
    plugins = used_by(config, {backbone.model.config.model_type for backbone in backbones.values()})
    return {
        "environment": describe(config.device or "cpu", config.dtype or "float32"),
        "weights": {name: _weights(backbone) for name, backbone in backbones.items()},
        "data": data,
        "code": {"options": _resolved_options(config, run.decoders)},
        **({"plugins": to_builtins(plugins)} if plugins else {}),
    }


def _resolved_options(config: RunConfig, decoders: Mapping[str, Decoder]) -> dict[str, dict[str, Any]]:
    """All options that decoders are called with, by method and suite: those that were set, and the defaults."""
    return {
        key: {
            suite: to_builtins(
                convert_options(decoders[key].options, setting.options, method.method),
                enc_hook=str,
                order="deterministic",  # of sets
            )
            for suite, setting in method.suites.items()
        }
        for key, method in config.methods.items()
    }


def begin_meta(folder: Path, config: RunConfig, made: dict[str, Any]) -> None:
    """Write run.json of a new run; one that is gone on with keeps its own. made: as `made_with` says.

    Raises UserError if that was made with other weights, problems, code or packages, or if it cannot be written.
    """
    if (folder / "run.json").exists():
        _check_same(folder, read_meta(folder), made)
        return
    meta = {
        "schema": SCHEMA,
        "name": folder.name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": config.to_json(),
        "config_hash": config_hash(config),
        **made,
    }
    write_meta(folder, meta)


def unlike(before: dict[str, Any], now: dict[str, Any], machine: bool) -> list[str]:
    """What makes tokens, verdicts or seconds and differs between two of `made_with`, with both values.

    machine: the machine, on which seconds depend, must be the same as well.
    """
    compared = [*SAME, *(SAME_MACHINE if machine else ())]
    known = before["data"].get("files") or {}  # an older record may lack a field, which is then not compared

    def part(made: dict[str, Any]) -> dict[str, Any]:
        files = (made["data"].get("files") or {}).items()
        return {
            "environment": {name: made["environment"].get(name) for name in compared},
            "weights": made["weights"],
            "data": {
                suite: {name: value for name, value in file.items() if name in known.get(suite, file)}
                for suite, file in files
            },
            "options": made["code"].get("options"),
            # Where a plugin lies does not matter.
            "plugins": {Path(each["path"]).name: each["sha256"] for each in made.get("plugins", [])},
        }

    return differences(part(before), part(now))


def device_name(description: dict[str, Any]) -> str:
    """The GPU of a worker, or its processor, as run.json names it; description: as `made_with`."""
    environment = description["environment"]
    return str(environment.get("gpu") or environment.get("cpu"))


def check_alike(first: dict[str, Any], other: dict[str, Any], worker: str, allowed: Collection[str]) -> None:
    """Raise UserError if a worker has other weights, problems, code or packages than the first, or another device.

    first, other: what each has, as `made_with` says. worker: the other's name. allowed: the devices
    that may share the run, all by name; `first` then has the names of both.
    """
    changed = unlike(first, other, machine=False)
    if changed:
        raise UserError(f"worker {worker} has something else than the first one: {'; '.join(changed)}")
    ours, theirs = first["environment"], other["environment"]
    parts = [part for part in SAME_MACHINE if ours.get(part) != theirs.get(part)]
    if not parts or all(str(theirs.get(part)) in str(ours.get(part)).split(BOTH) for part in parts):
        return
    known = {name for each in (first, other) for name in device_name(each).split(BOTH)}
    if not known <= set(allowed):
        raise UserError(
            f"the workers have unlike devices, {BOTH.join(sorted(known))}, whose seconds would be mixed; to allow "
            f'that: --allow-devices "{"; ".join(sorted(known))}"'
        )
    for part in parts:
        values = (str(value) for each in (ours, theirs) for value in str(each.get(part)).split(BOTH))
        ours[part] = BOTH.join(sorted(set(values)))


def _check_same(folder: Path, before: RunRecord, now: dict[str, Any]) -> None:
    """Raise UserError, naming every difference, if what makes tokens, verdicts or seconds is not what it was."""
    changed = unlike(to_builtins(before), now, before.config.timed)
    if changed:
        commit = before.environment.get("commit")
        raise UserError(
            f"--resume: {folder} was begun with something else, and would mix the two in one table: "
            f"{'; '.join(changed)}; restore what it was begun with"
            + (f" (git checkout {commit})" if commit and commit != now["environment"]["commit"] else "")
            + ", or begin a run of its own with another --out"
        )


@contextmanager
def new_or_not_at_all(folder: Path, begun: bool, recorded: Collection[object]) -> Iterator[None]:
    """Take back the records of a run that was not begun before, if not even its first response was recorded.

    begun: whether it was. recorded: the items that are.
    """
    try:
        yield
    except UserError:
        if not begun and not recorded:
            remove_records(folder)
        raise


def remove_records(folder: Path) -> None:
    """Delete what a run records, and its folders of tables, figures and report; other files stay."""
    for name in RECORDS:
        (folder / name).unlink(missing_ok=True)
    for name in ("tables", "figures", "report"):
        shutil.rmtree(folder / name, ignore_errors=True)


@contextmanager
def session(folder: Path, device: str, timed: bool = True, more: Callable[[], dict[str, Any]] = dict) -> Iterator[None]:
    """One entry of `sessions` in run.json: {"start": receipt, "end": receipt}; a kill leaves no end.

    timed: warn on stderr if others use the machine when it starts. more: what else the entry has, at the start and at
    the end.
    """
    start = receipt(device)
    warning = busy_warning(start) if timed else None
    if warning:
        print(f"{warning}, give --untimed, or export OMP_WAIT_POLICY=PASSIVE", file=sys.stderr)
    before = read_meta(folder).sessions
    write_meta(folder, {"sessions": [*before, {"start": start, "end": None, **more()}]})
    try:
        yield
    finally:
        with suppress(UserError):  # a full disk has its own message already
            write_meta(folder, {"sessions": [*before, {"start": start, "end": receipt(device), **more()}]})


def _weights(backbone: Backbone) -> dict[str, Any]:
    name, commit = backbone.model.config.name_or_path, getattr(backbone.model.config, "_commit_hash", None)
    folder = Path(name)  # or a hub id, whose snapshot lies in the cache
    if commit is not None and not folder.exists():
        config = try_to_load_from_cache(name, "config.json", revision=commit)
        folder = Path(config).parent if isinstance(config, str) else folder
    return {
        "name": backbone.name,
        "parameters": sum(parameter.numel() for parameter in backbone.model.parameters()),
        "max_length": backbone.max_length,
        "sha256": model_hashes(folder),
        "files": model_hashes(folder, BESIDE),
        "hub_commit": commit,
    } | ({} if backbone.adapter is None else {"adapter": model_hashes(backbone.adapter, (*WEIGHTS, *BESIDE))})
