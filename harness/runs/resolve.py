"""What a run is: its options resolved once, to a configuration and what it names, before anything is loaded or written.

The configuration is the whole of what determines tokens and forwards; its hash names it, and a run folder belongs to
one configuration for ever. Suites and decoders go with it as objects.
"""

import json
import math
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from msgspec import UNSET
from msgspec.structs import replace

from harness.errors import UserError
from harness.methods.presets import ROLES, Preset
from harness.methods.schedules import Roles, with_schedules
from harness.methods.selection import methods_named
from harness.outside import with_helpers
from harness.plugins import load_for, restore
from harness.records.files import file_hash, files_hash
from harness.records.schema import Method, QuestionsName, RunConfig, RunRecord, SuiteName
from harness.runs.options import RunOptions
from harness.runs.pool import Workers, workers_of
from harness.suites.published import blocks_of, family_of
from harness.suites.questions import Questions
from harness.suites.registry import (
    BUILT_IN,
    add_questions,
    suite_named,
    suites_named,
)
from harness.suites.spec import Suite
from harness.suites.splits import drawn, split_named, write_problems
from model_wrappers.api import check_temperature
from model_wrappers.backbones.model import check_graphs
from model_wrappers.backbones.registry import SHIPPED, device_named
from model_wrappers.decoders import Decoder, decoder_named, name_of

ROLES_OF = {  # --model NAME, of shipped models
    "nano": {"base": "nano", "fef": "nano-fef", "control": "nano-control", "ar": "nano-ar"},
    "nano-long": {"base": "nano-long", "fef": "nano-long", "control": "nano-long-control"},
    "nano-block": {"base": "nano-block", "fef": "nano-block", "control": "nano-block-control"},
    "nano-parallel": {"base": "nano-parallel-control", "fef": "nano-parallel"},
}
MOST_AT_ONCE = 1024  # responses of a batch
UNTIMED_BATCH, MANY = 16, 100  # how many are decoded at once where seconds do not count, of more items than that
BATCHED_CHUNK = 32  # items of a chunk in batches: at its end fewer and fewer responses are under way
# Whose checkpoint a prefix-conditioned or an autoregressive decoder has where its role has none.
STAND_INS = {"two-stream": ("fef", "base"), "fef": ("base",), "ar": ("base",)}


@dataclass(frozen=True)
class ResolvedRun:
    """A run with what its configuration names: suites by name, decoders by the method's key; and who decodes.

    data: the folder of its real problems; None where there are none.
    """

    config: RunConfig
    suites: dict[str, Suite]
    decoders: dict[str, Decoder]
    data: Path | None = None
    workers: Workers | None = None


def read_models(text: str, suites: Collection[str]) -> Roles:
    """The table of models, role -> suite -> name.

    text: one model (the base; nano brings its trained ones along), "role=model,role=model", or a JSON file
    {role: model}, where a model may also be a table {suite: model, "default": model}.
    Raises UserError for an unknown role, a suite without a model, or a missing base.
    """
    if text.endswith(".json"):
        try:
            table = json.loads(Path(text).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"--model {text}: cannot read the table of models: {error}") from error
    elif "=" in text:
        pairs = [pair.split("=", 1) for pair in text.split(",")]
        table = dict(pair for pair in pairs if len(pair) == 2)
        if len(table) < len(pairs):
            raise UserError(f"--model {text}: give role=model,role=model, each role once")
    else:
        table = ROLES_OF.get(text, {"base": text})
    if not isinstance(table, dict):
        raise UserError(f"--model {text}: the table of models must be a JSON object, role -> model, not {table!r}")
    unknown = [role for role in table if role not in ROLES]
    if unknown or "base" not in table:
        raise UserError(f"--model {text}: roles are {', '.join(ROLES)}, and base is needed; got {', '.join(table)}")
    roles: Roles = {}
    for role, named in table.items():
        per_suite = named if isinstance(named, dict) else {"default": named}
        if not all(isinstance(each, str) and each for each in per_suite.values()) or not per_suite:
            raise UserError(f"--model {text}: role {role} must name a model, or a model per suite, not {named!r}")
        missing = [suite for suite in suites if suite not in per_suite and "default" not in per_suite]
        if missing:
            raise UserError(f"--model {text}: role {role} names no model for {', '.join(missing)} and no default")
        roles[role] = {suite: str(per_suite.get(suite, per_suite.get("default"))) for suite in suites}
    return roles


def resolve(options: RunOptions) -> ResolvedRun:
    """A run from its options. Raises UserError or ValueError, naming the valid choices, for anything unknown."""
    workers = workers_of(options)
    load_for(options.methods, options.plugin)
    suites = suites_named(options.suite, options.data)
    presets = methods_named(options.methods)
    roles = read_models(options.model, suites)
    check_graphs(options.graphs, device_named(options.device))
    for preset in presets.values():
        check_temperature(preset.method, options.temperature)
    shipped = set(roles["base"].values()) <= SHIPPED.keys()
    elsewhere = [suite for suite, own in suites.items() if own.questions is None]  # whose problems are in --data
    usual = "generated" if shipped else os.environ.get("COMPASS_DATA_CACHE")
    data = (options.data or usual) if elsewhere else ""
    if data is None:
        raise UserError(
            f"--data is needed for a model that does not ship with this project ({', '.join(SHIPPED)} do): a folder in "
            "OpenCompass's layout, or `generated`"
        )
    generated = split_named(data) is not None
    lengths = {name: getattr(options, name) for name in ("gen_length", "block_length", "stop_at_eos")}
    overrides = {name: value for name, value in lengths.items() if value is not None}
    small = {suite: shipped or (generated and suite in elsewhere) for suite in suites}
    settings = {name: suite.settings_for(roles["base"][name], small[name]) for name, suite in suites.items()}
    families = {suite: "" if small[suite] else family_of(roles["base"][suite]) for suite in suites}
    table = {name: _method(preset, name, roles, settings, overrides, families) for name, preset in presets.items()}
    used = {"base"} | {role for method in table.values() for role in (method.role, method.draft_role)}
    # Workers may be elsewhere, and each finds its device itself.
    on_cpu = options.device == "cpu" if workers else device_named(options.device).type == "cpu"
    threads = options.threads if workers is None else workers.threads
    seeds = _seeds(options.seed, options.temperature)
    outside = any(not isinstance(preset.decoder.source, str) for preset in presets.values())
    batch = _batch(options, outside)
    config = RunConfig(
        models={role: models for role, models in roles.items() if role in used},
        suites={name: _suite(suite, generated) for name, suite in suites.items()},
        methods=_distinct(with_schedules(table, roles)),
        data=data
        if generated
        else {name: files_hash(suite.files(False, Path(data))) for name, suite in suites.items()},
        limit=options.limit,
        temperature=options.temperature,
        seed=seeds[0],
        seeds=UNSET if len(seeds) == 1 else seeds,
        device=options.device,
        dtype=options.dtype or ("float32" if on_cpu else "bfloat16"),
        compile=False,
        graphs=options.graphs,
        threads=threads or torch.get_num_threads(),
        chunk=options.chunk if batch is None else max(options.chunk, BATCHED_CHUNK),
        batch=UNSET if batch is None else batch,
        timed=not options.untimed and batch is None,
        traced=options.trace,
        trust_remote_code=True if options.trust_remote_code else UNSET,
        reads_at=UNSET if options.reads_at is None else options.reads_at,
        prompt=UNSET if options.prompt == "chat" else options.prompt,
    )
    decoders = {name: preset.decoder for name, preset in presets.items()}
    folder = Path(data) if data and not generated else None
    return ResolvedRun(config, suites, decoders, folder, workers)


def _batch(options: RunOptions, outside: bool) -> int | Literal["auto"] | None:
    """How many responses are decoded at once; None for one. Raises UserError for what is no such number.

    Where it is not said, UNTIMED_BATCH in an untimed run of more than MANY items whose calls can be packed. outside:
    whether a decoder is not of this package; it may count on being alone in its process.
    """
    batch = options.batch
    alone = outside or options.graphs or options.trust_remote_code
    if batch is None and options.untimed and not alone and (options.limit or math.inf) > MANY:
        return UNTIMED_BATCH
    if isinstance(batch, int) and not 1 <= batch <= MOST_AT_ONCE:
        raise UserError(f"--batch {batch} must be 1 to {MOST_AT_ONCE} responses at once, or auto")
    for name in ("graphs", "trust_remote_code"):
        if batch not in (None, 1) and getattr(options, name):
            raise UserError(
                f"--batch packs the calls of plain forwards, and --{name.replace('_', '-')} makes others: leave one out"
            )
    return None if batch == 1 else batch


def _seeds(given: str | int | tuple[int, ...], temperature: float) -> tuple[int, ...]:
    """The seeds of a run. Raises UserError for what are none, and for several where all give the same tokens."""
    text = given if isinstance(given, str) else ",".join(map(str, given if isinstance(given, tuple) else (given,)))
    try:
        seeds = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"--seed {text} must be a whole number, or several as 0,1,2") from None
    if min(seeds) < 0:
        raise UserError(f"--seed {text} must be at least 0")
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seed {text} names a seed twice")
    if len(seeds) > 1 and not temperature:
        raise UserError(f"--seed {text}: at temperature 0 all seeds give the same tokens; add --temperature")
    return seeds


def recorded(config: RunConfig, data: dict[str, Any]) -> ResolvedRun:
    """A run from its record; data: that part of run.json.

    Raises UserError or ValueError for a suite or a decoder that is not known here.
    """
    decoders = {name: decoder_named(method.method) for name, method in config.methods.items()}
    suites = {suite: suite_named(suite) for suite in config.suites}
    return ResolvedRun(config, suites, decoders, None if config.generated else Path(data["folder"]))


def _suite(suite: Suite, generated: bool) -> SuiteName:
    """A suite as a run names it; real problems with the configuration that they are asked by."""
    executes = UNSET if suite.name in BUILT_IN or suite.foreign else suite.executes
    if suite.questions is not None:
        return SuiteName(suite.title, questions=_questions(suite.questions), executes=executes)
    if generated:
        _ = suite.generated  # refused here if there is none
        return SuiteName(suite.title, executes=executes)
    return SuiteName(suite.title, suite.configuration or UNSET, suite.configuration_hash(), executes=executes)


def _questions(questions: Questions) -> QuestionsName:
    """A file of questions as a run names it, without the folders it lies in."""
    file = questions.judge_file
    judge = questions.judge if file is None else f"{file.name}:{questions.judge.rpartition(':')[2]}"
    digest = UNSET if file is None else files_hash(with_helpers(file))
    sha256 = file_hash(questions.file)
    return QuestionsName(questions.file.name, sha256, questions.prompt, questions.answer, judge, digest)


def _method(
    preset: Preset,
    name: str,
    roles: Roles,
    settings: dict[str, dict[str, Any]],
    overrides: dict[str, Any],
    families: dict[str, str],
) -> Method:
    """A preset as a row of this run. Raises UserError if the run has no checkpoint for it."""
    decoder = preset.decoder
    stand_ins = STAND_INS.get(preset.role, ()) if decoder.prefix_conditioned or decoder.causal else ()
    role = next((role for role in (preset.role, *stand_ins) if role in roles), None)
    if role is None:
        raise UserError(f"method {name} needs the role {preset.role}: --model base=...,{preset.role}=...")
    untrained = role == "base" != preset.role
    label = preset.label.replace("FeF-DLLM", "FeF-DLLM w/o train", 1) if untrained else preset.label
    return Method(
        label=label,
        method=name_of(preset.method),
        role=role,
        draft_role=preset.draft_role or ("draft" if decoder.takes("draft") and "draft" in roles else None),
        suites={
            suite: preset.for_suite(suite, own, overrides, families[suite], blocks_of(roles[role][suite]))
            for suite, own in settings.items()
        },
    )


def _distinct(methods: dict[str, Method]) -> dict[str, Method]:
    """The methods, each with a label of its own: where several have the same, the later ones have their keys behind."""
    seen: set[str] = set()
    found = {}
    for name, method in methods.items():
        found[name] = replace(method, label=f"{method.label} [{name}]") if method.label in seen else method
        seen.add(method.label)
    return found


def write_generated(folder: Path, config: RunConfig, suites: Iterable[Suite]) -> None:
    """Write the generated problems that a configuration asks for of these suites, in the real files' layout."""
    assert isinstance(config.data, str), "a run on real files generates nothing"
    for suite in suites:
        if suite.questions is None:
            write_problems(folder, suite, drawn(suite, config.data, config.limit))


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """What differs between two configurations, as dotted paths with both values."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = [*before, *(key for key in after if key not in before)]
        return [
            difference
            for key in keys
            for difference in differences(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
        ]
    there, now = ("all of it" if isinstance(each, dict) else each for each in (before, after))
    return [] if before == after else [f"{path} ({there} there, {now} now)"]


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
