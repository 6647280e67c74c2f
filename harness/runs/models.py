"""The table of models, role -> suite -> name; and the rows of a run: each method with its
checkpoint and settings."""

import json
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from harness.errors import UserError, explained
from harness.methods.presets import ROLES, ROLES_OF, Preset
from harness.methods.schedules import Roles, with_schedules
from harness.records.schema import Method
from harness.suites.published import blocks_of, family_of
from harness.suites.registry import SUITES
from harness.suites.spec import Suite

# Whose checkpoint a prefix-conditioned or an autoregressive decoder has where its role has none.
STAND_INS = {"two-stream": ("fef", "base"), "fef": ("base",), "ar": ("base",)}


def read_models(text: str, suites: Collection[str]) -> Roles:
    """The table of models, role -> suite -> name.

    text: one model (the base; nano brings its trained ones along), "role=model,role=model", or a
    JSON file {role: model}, where a model may also be a table {suite: model, "default": model}.
    Raises UserError for an unknown role, a suite without a model, or a missing base.
    """
    if text.endswith(".json"):
        with explained(f"--model {text}: cannot read the table of models", OSError, ValueError):
            table = json.loads(Path(text).read_text(encoding="utf-8"))
    elif "=" in text:
        pairs = [pair.split("=", 1) for pair in text.split(",")]
        table = dict(pair for pair in pairs if len(pair) == 2)
        table = table if len(table) == len(pairs) else None
    else:
        table = ROLES_OF.get(text, {"base": text})
    if not isinstance(table, dict) or "base" not in table or not table.keys() <= set(ROLES):
        got = f"; got {', '.join(table)}" if isinstance(table, dict) else ""
        raise UserError(
            f"--model {text}: give role=model,role=model, each role once, or a JSON object, role ->"
            f" model; roles are {', '.join(ROLES)}, and base is needed{got}"
        )
    roles: Roles = {}
    for role, named in table.items():
        per_suite = named if isinstance(named, dict) else {"default": named}
        _check_suites(f"--model {text}: role {role}", per_suite.keys() - {"default"}, suites)
        missing = [
            suite for suite in suites if suite not in per_suite and "default" not in per_suite
        ]
        if (
            not all(isinstance(each, str) and each for each in per_suite.values())
            or not per_suite
            or missing
        ):
            lacking = f"; there is none for {', '.join(missing)} and no default" if missing else ""
            raise UserError(
                f"--model {text}: role {role} must name a model, or one per suite, not"
                f" {named!r}{lacking}"
            )
        roles[role] = {
            suite: str(per_suite.get(suite, per_suite.get("default"))) for suite in suites
        }
    return roles


def _check_suites(who: str, named: Collection[str], suites: Collection[str]) -> None:
    """Raise UserError if `who` names a suite that there is not, and that is like one of the
    run's."""
    known = {name.lower(): name for name in suites}
    for name in {*named} - {*suites, *SUITES}:
        if near := get_close_matches(name.lower(), known, n=1):
            raise UserError(f"{who} names the suite {name}; did you mean {known[near[0]]}?")


def with_own_roles(roles: Roles, presets: Mapping[str, Preset]) -> Roles:
    """The table, with a role more, the method's key, for each tuned method whose checkpoints differ
    by suite.

    Raises UserError for a role that the table lacks.
    """
    found = dict(roles)
    for key, preset in presets.items():
        for role in (
            {*preset.roles.values(), preset.role} if preset.roles else set()
        ) - roles.keys():
            raise UserError(f"method {key} needs the role {role}: --model base=...,{role}=...")
        if preset.roles:
            found[key] = {
                suite: roles[preset.roles.get(suite, preset.role)][suite] for suite in roles["base"]
            }
    return found


def rows_of(
    presets: Mapping[str, Preset],
    suites: Mapping[str, Suite],
    roles: Roles,
    small: Collection[str],
    common: dict[str, Any],
) -> dict[str, Method]:
    """The methods of a run by key, each with its checkpoint, and its lengths and options on every
    suite.

    small: the suites with a small model's settings. common: lengths and options of all methods
    alike. Raises UserError or ValueError for a method without a checkpoint, or with settings that
    do not fit.
    """
    base = roles["base"]
    usual = {name: suite.settings_for(base[name], name in small) for name, suite in suites.items()}
    families = {name: "" if name in small else family_of(base[name]) for name in suites}
    rows = {}
    for key, preset in presets.items():
        if not preset.tuned_on:  # for suites that other runs may have
            _check_suites(f"method {key}", preset.suites, suites)
        decoder = preset.decoder
        stand_ins = (
            STAND_INS.get(preset.role, ()) if decoder.prefix_conditioned or decoder.causal else ()
        )
        wanted = key if preset.roles else preset.role
        role = next((role for role in (wanted, *stand_ins) if role in roles), None)
        lacking = preset.role if role is None else preset.draft_role
        if role is None or lacking not in (None, *roles):
            raise UserError(
                f"method {key} needs the role {lacking}: --model base=...,{lacking}=..."
            )
        untrained = role == "base" != preset.role
        rows[key] = Method(
            label=(
                preset.label.replace("FeF-DLLM", "FeF-DLLM w/o train", 1)
                if untrained
                else preset.label
            ),
            method=decoder.name,
            role=role,
            draft_role=preset.draft_role
            or ("draft" if decoder.takes("draft") and "draft" in roles else None),
            suites={
                name: preset.for_suite(
                    name, usual[name], common, families[name], blocks_of(roles[role][name])
                )
                for name in suites
            },
        )
    return _distinct(with_schedules(rows, roles))


def _distinct(methods: dict[str, Method]) -> dict[str, Method]:
    """The methods, each with a label of its own: where several have the same, the later ones have
    their keys behind."""
    seen: set[str] = set()
    found = {}
    for name, method in methods.items():
        label = " ".join(method.label.split())  # as a table shows it
        found[name] = replace(method, label=f"{label} [{name}]" if label in seen else label)
        seen.add(label)
    return found
