"""A run's folder: who may write there, what its run.json says, and whether sessions and workers are
alike."""

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
from huggingface_hub import try_to_load_from_cache
from msgspec import UNSET, to_builtins

from harness.elements import format_call
from harness.errors import UserError
from harness.options import checked
from harness.plugins import used_by
from harness.records.consistency import differences
from harness.records.environment import busy_warning, describe, receipt
from harness.records.files import BESIDE, TRACES, WEIGHTS, files_hash, model_hashes
from harness.records.schema import SCHEMA, RunConfig, RunRecord
from harness.records.store import config_hash, read_meta, write_meta
from harness.runs.options import RunOptions
from harness.runs.resolve import ResolvedRun, resolve
from model_wrappers.backbones.model import Backbone
from model_wrappers.decoders import Decoder
from model_wrappers.options import convert_options

ROOT = Path(__file__).resolve().parents[2]
LOCK = ".lock"
LINES = ("items.jsonl", "windows.jsonl", "passes.jsonl", "prompts.jsonl")
RECORDS = ("run.json", TRACES, *LINES, *(f"{name}.gz" for name in LINES))
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # of a file system
NAMED = 6  # differences of configurations in a message
# whose versions sessions of a run have in common
TOKEN_PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
)
SAME_MACHINE = ("platform", "cpu", "cpu_capability", "gpu")  # and where seconds are for comparison
BOTH = " and "  # between the names of unlike devices


def grown(options: RunOptions) -> RunOptions:
    """Options of a run that goes on: what is not given is the run's, and its methods, suites and
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
    options = replace(
        options, **{name: recorded[name] for name in meta.options if name not in named}
    )
    options = replace(options, threads=options.threads or before.threads)
    if options.limit is not None and before.limit is not None:
        options = replace(options, limit=max(options.limit, before.limit))
    if options.limit != before.limit and len(before.draws) > 1:
        raise UserError(
            f"--resume: {options.out} has several seeds, and its items are numbered for --limit"
            f" {before.limit}; keep it"
        )
    methods = _listed(options.methods) if "methods" in named else tuple(before.methods)
    suites = _listed(options.suite) if "suite" in named else _elements(meta, before.suites)
    options = replace(options, methods=methods, suite=suites)
    plugins = [each.plugin for each in meta.plugins if each.plugin not in options.plugin]
    options = replace(options, plugin=(*options.plugin, *plugins))
    config = resolve(options).config
    missing = tuple(name for name in before.methods if name not in config.methods)
    others = _elements(meta, [name for name in before.suites if name not in config.suites])
    return replace(options, methods=(*missing, *options.methods), suite=(*others, *options.suite))


def _listed(given: Any) -> tuple[Any, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _elements(meta: RunRecord, suites: Iterable[str]) -> tuple[str, ...]:
    return tuple(_element(meta, suite) for suite in suites)


def _element(meta: RunRecord, suite: str) -> str:
    """A suite of a run as --suite takes it."""
    questions = meta.config.suites[suite].questions
    if questions is UNSET:
        return suite
    paths = meta.data["paths"][suite]
    arguments = {"prompt": questions.prompt, "answer": questions.answer, "judge": paths["judge"]}
    return format_call(
        f"{suite}={paths['file']}", {name: value for name, value in arguments.items() if value}
    )


def claim_folder(
    out: Path | None, config: RunConfig, resume: bool, overwrite: bool = False
) -> Path:
    """The folder for a run: new; with `resume` one whose responses it may keep; with `overwrite`
    one that may go.

    Raises UserError for anything else, so that no run's records are written over unless that is
    wanted.
    """
    if out is None and not (resume or overwrite):
        name = next(iter(config.models["base"].values())).rstrip("/").split("/")[-1]
        return runs_folder(ROOT) / f"{datetime.now():%Y%m%d-%H%M%S}-{name}"
    if resume and overwrite:
        raise UserError(
            "--resume goes on with the run in --out, --overwrite begins anew: give one of them"
        )
    if out is None:
        again = "--resume" if resume else "--overwrite"
        raise UserError(f"{again} needs --out, the folder of the run")
    if not (out / "run.json").exists():
        records = [name for name in RECORDS if (out / name).exists()]
        if records:
            raise UserError(
                f"{out} has {records[0]} and no run.json: put that back, or choose another --out"
            )
        return out
    before = read_meta(out).config  # a run.json of somebody else is not overwritten
    if overwrite:
        return out
    if not resume:
        raise UserError(
            f"{out} already holds a run; add --resume to go on with it, --overwrite to begin anew,"
            " or another --out"
        )
    changed = unlike_settings(before.to_json(), config.to_json())
    if changed:
        named = "; ".join(changed[:NAMED])
        raise UserError(
            f"--resume: {out} has responses made with other settings: {named}; choose another --out"
        )
    return out


def unlike_settings(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What makes tokens or seconds and differs between two configurations, of the methods and
    suites that both have."""

    def part(config: dict[str, Any]) -> dict[str, Any]:
        left_out = {"limit", "traced", "chunk", "methods", "suites", "models", "data"}
        if not config.get("timed", True):
            left_out |= {"threads", "batch"}
        kept = {name: value for name, value in config.items() if name not in left_out}
        suites = before["suites"].keys() & now["suites"].keys()
        kept["data"] = "generated" if isinstance(config["data"], dict) else config["data"]
        if isinstance(config["data"], dict):
            kept["data"] = "files"
        for role in before["models"].keys() & now["models"].keys():
            kept[f"models.{role}"] = {
                suite: name for suite, name in config["models"][role].items() if suite in suites
            }
        for name in before["methods"].keys() & now["methods"].keys():
            method = config["methods"][name]
            settings = {
                suite: setting for suite, setting in method["suites"].items() if suite in suites
            }
            kept[name] = method | {"suites": settings, "label": ""}
        return kept

    return differences(part(before), part(now))


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


def describe_data(run: ResolvedRun, data: Path) -> dict[str, Any]:
    """The data part of run.json: where it came from, and each suite's file with its SHA-256.

    paths: where files of questions and their judges lie, so that they are found when the run is
    scored.
    """
    config = run.config
    files = {name: suite.files(config.generated, data) for name, suite in run.suites.items()}
    own = {
        name: suite.questions for name, suite in run.suites.items() if suite.questions is not None
    }
    lie = {
        suite: {"file": str(questions.file), "judge": questions.judge}
        for suite, questions in own.items()
    }
    folder = "" if own.keys() == config.suites.keys() else str(data.resolve())
    return {
        "folder": config.data if config.generated else folder,
        "files": {
            suite: {"name": paths[0].name, "sha256": files_hash(paths)}
            for suite, paths in files.items()
        },
        **({"paths": lie} if lie else {}),
    }


def made_with(
    run: ResolvedRun, backbones: dict[str, Backbone], data: dict[str, Any]
) -> dict[str, Any]:
    """What a run is made with, as run.json has it: environment, weights, data, options, plugins.

    data: as `describe_data` says. Of the process that decodes: its machine, and the models that it
    loaded.
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


def _resolved_options(
    config: RunConfig, decoders: Mapping[str, Decoder]
) -> dict[str, dict[str, Any]]:
    """All options that decoders are called with, by method and suite: those that were set, and the
    defaults."""
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


def begin_meta(
    folder: Path, config: RunConfig, made: dict[str, Any], options: Mapping[str, Any] | None = None
) -> list[str]:
    """Write run.json; of a run that goes on, the configuration and what it is made with now.

    Args:
        made: as `made_with` says.
        options: that were given, which --resume takes again.

    Returns:
        What is not as it was and may differ: commit, packages that make no tokens, files of
        problems.

    Raises:
        UserError: weights, options, plugins, packages or a machine that make tokens or seconds are
        not what they were;
            or run.json cannot be written.
    """
    parts = {
        "config": config.to_json(),
        "config_hash": config_hash(config),
        "options": dict(options or {}),
    }
    if not (folder / "run.json").exists():
        created = datetime.now(UTC).isoformat(timespec="seconds")
        write_meta(
            folder, {"schema": SCHEMA, "name": folder.name, "created": created, **parts, **made}
        )
        return []
    before = to_builtins(read_meta(folder))
    changed = unlike(before, made, before["config"].get("timed", True))
    if changed:
        raise UserError(
            f"--resume: {folder} was begun with something else, and would mix the two in one table:"
            f" {'; '.join(changed)}; restore it, or begin a run of its own with another --out"
        )
    there = _hashes(before)
    now = _hashes(made)
    notes = [
        *differences(_noted(before), _noted(made)),
        *differences(_shared(there, now), _shared(now, there)),
    ]
    kept: dict[str, Any] = {
        name: {**before.get(name, {}), **made[name]} for name in ("weights", "code")
    }
    plugins = {
        each["plugin"]: each for each in [*before.get("plugins", []), *made.get("plugins", [])]
    }
    if plugins:
        kept["plugins"] = list(plugins.values())
    write_meta(folder, {**parts, "data": made["data"], **kept})
    return notes


def _noted(made: dict[str, Any]) -> dict[str, Any]:
    """What may differ between sessions of a run, but is written down."""
    return {
        name: made["environment"].get(name) for name in ("commit", "version", "python", "packages")
    }


def _hashes(made: dict[str, Any]) -> dict[str, str | None]:
    """SHA-256 of the problems by suite."""
    files = made["data"].get("files") or {}
    return {suite: file.get("sha256") for suite, file in files.items()}


def unlike(before: dict[str, Any], now: dict[str, Any], machine: bool) -> list[str]:
    """What makes tokens or seconds and differs between two of `made_with`, with both values, of
    what both have.

    machine: the machine, on which seconds depend, must be the same as well.
    """

    def part(made: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        environment = made["environment"]
        packages = environment.get("packages") or {}
        options = _shared(_options(made), _options(other))
        return {
            "packages": {name: packages.get(name) for name in TOKEN_PACKAGES},
            "machine": {name: environment.get(name) for name in SAME_MACHINE if machine},
            "weights": _shared(made["weights"], other["weights"]),
            "options": {
                method: _shared(suites, _options(other)[method])
                for method, suites in options.items()
            },
            "plugins": _shared(_plugins(made), _plugins(other)),
        }

    return differences(part(before, now), part(now, before))


def _shared(values: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in other}


def _options(made: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The options that decoders are called with, by method and suite."""
    return (made.get("code") or {}).get("options") or {}


def _plugins(made: dict[str, Any]) -> dict[str, str]:
    """SHA-256 of the code of plugins by file name: where a plugin lies does not matter."""
    return {Path(each["path"]).name: each["sha256"] for each in made.get("plugins", [])}


def device_name(description: dict[str, Any]) -> str:
    """The GPU of a worker, or its processor, as run.json names it; description: as `made_with`."""
    environment = description["environment"]
    return str(environment.get("gpu") or environment.get("cpu"))


def check_alike(first: dict[str, Any], other: dict[str, Any], worker: str, timed: bool) -> None:
    """Raise UserError if a worker has other weights, problems, code or packages than the first, or
    another device.

    first, other: what each has, as `made_with` says. worker: the other's name. timed: whether
    seconds are compared; in a run without, unlike devices are noted: `first` then has the names of
    both.
    """
    changed = [*unlike(first, other, machine=False), *differences(_noted(first), _noted(other))]
    changed += differences(first["data"].get("files"), other["data"].get("files"), "data")
    if changed:
        raise UserError(
            f"worker {worker} has something else than the first one: {'; '.join(changed)}"
        )
    ours = first["environment"]
    theirs = other["environment"]
    parts = [part for part in SAME_MACHINE if ours.get(part) != theirs.get(part)]
    if not parts or all(str(theirs.get(part)) in str(ours.get(part)).split(BOTH) for part in parts):
        return
    known = {name for each in (first, other) for name in device_name(each).split(BOTH)}
    if timed:
        raise UserError(
            f"the workers have unlike devices, {BOTH.join(sorted(known))}, whose seconds would be"
            " mixed; add --untimed"
        )
    for part in parts:
        values = (
            str(value) for each in (ours, theirs) for value in str(each.get(part)).split(BOTH)
        )
        ours[part] = BOTH.join(sorted(set(values)))


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
    write_meta(folder, {"sessions": [*before, {"start": start, "end": None, **more()}]})
    try:
        yield
    finally:
        with suppress(UserError):  # a full disk has its own message already
            write_meta(
                folder, {"sessions": [*before, {"start": start, "end": receipt(device), **more()}]}
            )


def _weights(backbone: Backbone) -> dict[str, Any]:
    name = backbone.model.config.name_or_path
    commit = getattr(backbone.model.config, "_commit_hash", None)
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
    } | (
        {}
        if backbone.adapter is None
        else {"adapter": model_hashes(backbone.adapter, (*WEIGHTS, *BESIDE))}
    )
