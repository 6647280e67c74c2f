"""What a run is: the command line resolved to one configuration, checked before anything is loaded or written.

The configuration is the whole of what determines tokens and forwards; its hash names it, and a run folder belongs to
one configuration for ever.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from msgspec import UNSET
from msgspec.structs import replace

from harness.errors import UserError
from harness.methods.asked import methods_named
from harness.methods.presets import ROLES, Preset
from harness.methods.published import family_of
from harness.methods.schedule_files import Roles, with_schedules
from harness.plugins import load_for
from harness.records.hashes import file_hash, files_hash
from harness.records.schema import Method, QuestionsName, RunConfig, SuiteName
from harness.suites.configurations import configuration_hash, real_files
from harness.suites.published import settings_for
from harness.suites.questions import Questions
from harness.suites.registry import (
    BUILT_IN,
    generated_file,
    generator_of,
    suite_named,
    suites_named,
)
from harness.suites.splits import split_named, write_drawn
from model_wrappers.api import check_temperature
from model_wrappers.backbones.model import check_graphs
from model_wrappers.backbones.registry import SHIPPED, device_named
from model_wrappers.decoders import METHODS

ROLES_OF = {  # --model NAME, of shipped models
    "nano": {"base": "nano", "fef": "nano-fef", "control": "nano-control"},
    "nano-long": {"base": "nano-long", "fef": "nano-long", "control": "nano-long-control"},
}
# Whose checkpoint a prefix-conditioned decoder has where its role has none.
STAND_INS = {"two-stream": ("fef", "base"), "fef": ("base",)}


def read_models(text: str, suites: list[str]) -> Roles:
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
        table = dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair)
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


def resolve(asked: argparse.Namespace) -> RunConfig:
    """The configuration of a run. Raises UserError or ValueError, naming the valid choices, for anything unknown."""
    load_for(asked.methods, asked.plugin)
    suites = suites_named(asked.suite)
    methods = methods_named(asked.methods)
    roles = read_models(asked.model, suites)
    _check_numbers(asked)
    check_graphs(asked.graphs, device_named(asked.device), asked.compile)
    for preset in methods.values():
        check_temperature(preset.method, asked.temperature)
    shipped = set(roles["base"].values()) <= SHIPPED.keys()
    elsewhere = [suite for suite in suites if suite_named(suite).questions is None]  # whose problems are in --data
    data = asked.data or ("generated" if shipped else os.environ.get("COMPASS_DATA_CACHE"))
    if not elsewhere:
        data = ""
    if data is None:
        raise UserError(
            f"--data is needed for a model that does not ship with this project ({', '.join(SHIPPED)} do): a folder in "
            "OpenCompass's layout, or `generated`"
        )
    generated = split_named(data) is not None
    overrides = {k: v for k in ("gen_length", "block_length", "stop_at_eos") if (v := getattr(asked, k)) is not None}
    small = {suite: shipped or (generated and suite in elsewhere) for suite in suites}
    settings = {suite: settings_for(suite, roles["base"][suite], small[suite]) for suite in suites}
    families = {suite: "" if small[suite] else family_of(roles["base"][suite]) for suite in suites}
    table = {name: _method(preset, name, roles, settings, overrides, families) for name, preset in methods.items()}
    used = {"base"} | {role for method in table.values() for role in (method.role, method.draft_role)}
    return RunConfig(
        models={role: models for role, models in roles.items() if role in used},
        suites={suite: _suite(suite, generated) for suite in suites},
        methods=_distinct(with_schedules(table, roles, asked.schedules, generated)),
        data=data if generated else {suite: files_hash(problem_files(suite, False, Path(data))) for suite in suites},
        limit=asked.limit,
        temperature=float(asked.temperature),
        seed=asked.seed,
        device=asked.device,
        dtype=asked.dtype or ("float32" if _on_cpu(asked) else "bfloat16"),
        compile=asked.compile,
        graphs=asked.graphs,
        threads=asked.threads or torch.get_num_threads(),
        chunk=asked.chunk,
        timed=not asked.untimed,
        traced=asked.trace,
        trust_remote_code=True if asked.trust_remote_code else UNSET,
        reads_at=UNSET if asked.reads_at is None else asked.reads_at,
    )


def _on_cpu(asked: argparse.Namespace) -> bool:
    """Whether decoding is on the CPU. Of workers, which may be elsewhere, each finds its device itself."""
    return bool(asked.device == "cpu") if asked.workers else device_named(asked.device).type == "cpu"


def _check_numbers(asked: argparse.Namespace) -> None:
    """UserError for a number that makes no run, before anything is loaded or written."""
    for name, least in (("limit", 1), ("threads", 1), ("chunk", 1), ("seed", 0)):
        value = getattr(asked, name)
        if value is not None and value < least:
            raise UserError(f"--{name} {value} must be at least {least}")


def _suite(suite: str, generated: bool) -> SuiteName:
    """A suite as a run names it; real problems with the configuration that they are asked by."""
    spec = suite_named(suite)
    executes = UNSET if suite in BUILT_IN or spec.foreign else spec.executes
    if spec.questions is not None:
        return SuiteName(spec.title, questions=_questions(spec.questions), executes=executes)
    if generated:
        generator_of(suite)  # refused here if there is none
        return SuiteName(spec.title, executes=executes)
    return SuiteName(spec.title, spec.configuration or UNSET, configuration_hash(suite), executes=executes)


def _questions(questions: Questions) -> QuestionsName:
    """A file of questions as a run names it, without the folders it lies in."""
    file = questions.judge_file
    judge = questions.judge if file is None else f"{file.name}:{questions.judge.rpartition(':')[2]}"
    digest = UNSET if file is None else file_hash(file)
    sha256 = file_hash(questions.file)
    return QuestionsName(questions.file.name, sha256, questions.prompt, questions.answer, judge, digest)


def problem_files(suite: str, generated: bool, data: Path) -> list[Path]:
    """The files of a suite's problems: a file of questions, or generated or real ones below `data`."""
    questions = suite_named(suite).questions
    if questions is not None:
        return [questions.file]
    return [generated_file(suite, data)] if generated else real_files(suite, data)


def _method(
    preset: Preset,
    name: str,
    roles: Roles,
    settings: dict[str, dict[str, Any]],
    overrides: dict[str, Any],
    families: dict[str, str],
) -> Method:
    """A preset as a row of this run. Raises UserError if the run has no checkpoint for it."""
    decoder = METHODS[preset.method]
    stand_ins = STAND_INS.get(preset.role, ()) if decoder.prefix_conditioned else ()
    role = next((role for role in (preset.role, *stand_ins) if role in roles), None)
    if role is None:
        raise UserError(f"method {name} needs the role {preset.role}: --model base=...,{preset.role}=...")
    untrained = role == "base" != preset.role
    label = preset.label.replace("FeF-DLLM", "FeF-DLLM w/o train", 1) if untrained else preset.label
    return Method(
        label=label,
        method=preset.method,
        role=role,
        draft_role=preset.draft_role or ("draft" if decoder.takes("draft") and "draft" in roles else None),
        suites={suite: preset.for_suite(suite, own, overrides, families[suite]) for suite, own in settings.items()},
    )


def _distinct(methods: dict[str, Method]) -> dict[str, Method]:
    """The methods, each with a label of its own: where several have the same, the later ones have their keys behind."""
    seen: set[str] = set()
    found = {}
    for name, method in methods.items():
        found[name] = replace(method, label=f"{method.label} [{name}]") if method.label in seen else method
        seen.add(method.label)
    return found


def write_generated(folder: Path, config: RunConfig, suites: Iterable[str] | None = None) -> None:
    """Write the generated problems that a configuration asks for, or those of `suites`, in the real files' layout."""
    assert isinstance(config.data, str), "a run on real files generates nothing"
    wanted = [suite for suite in suites or config.suites if suite_named(suite).questions is None]
    write_drawn(folder, config.data, config.limit, wanted)


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """What differs between two configurations, as dotted paths with both values."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = [*before, *(key for key in after if key not in before)]
        return [
            difference
            for key in keys
            for difference in differences(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
        ]
    return [] if before == after else [f"{path} ({before} there, {after} now)"]
