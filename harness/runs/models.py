"""The table of models, role -> suite -> name, and the methods of a run, each with its checkpoint
and settings."""

import json
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from harness.errors import UserError, explained
from harness.methods.presets import ROLES, ROLES_OF, Preset
from harness.methods.schedules import Roles, with_schedules
from harness.methods.settings import setting_of
from harness.records.schema import Method
from harness.suites.published import blocks_of, family_of
from harness.suites.registry import SUITES
from harness.suites.spec import Suite

# The roles whose checkpoints a prefix-conditioned or an autoregressive decoder falls back to, in
# this order, if its own role has none.
STAND_INS = {"two-stream": ("fef", "base"), "fef": ("base",), "ar": ("base",)}


def read_models(text: str, suites: Collection[str]) -> Roles:
    """The table of models, role -> suite -> name.

    Args:
        text: the value of --model: one model, the base (nano brings its trained ones along);
            "role=model,role=model"; or a JSON file {role: model}, where a model may also be
            {suite: model, "default": model}.
        suites: the names of the run's suites.

    Raises:
        UserError: an unknown role, a suite without a model, or a missing base.
    """
    table = _model_table(text)
    if not isinstance(table, dict) or "base" not in table or not table.keys() <= set(ROLES):
        raise UserError(
            f"--model {text}: give role=model,role=model, each role once, or a JSON object, role ->"
            f" model; roles are {', '.join(ROLES)}, and base is needed"
        )
    roles: Roles = {}
    for role, models in table.items():
        roles[role] = _models_of(f"--model {text}: role {role}", models, suites)
    return roles


def _models_of(origin: str, models: Any, suites: Collection[str]) -> dict[str, str]:
    """The models of a role by suite. Raises UserError for a suite without one."""
    per_suite = models if isinstance(models, dict) else {"default": models}
    _check_suites(origin, per_suite.keys() - {"default"}, suites)
    default = per_suite.get("default")
    by_suite: dict[str, Any] = {suite: per_suite.get(suite, default) for suite in suites}
    if not all(isinstance(model, str) and model for model in by_suite.values()):
        raise UserError(
            f"{origin} must name a model, or one for each of {', '.join(suites)} or as default, not"
            f" {models!r}"
        )
    return by_suite


def _model_table(text: str) -> Any:
    """The table that --model stands for, unchecked; None if its text is no table."""
    if text.endswith(".json"):
        with explained(f"--model {text}: cannot read the table of models", OSError, ValueError):
            return json.loads(Path(text).read_bytes())
    if "=" not in text:
        return ROLES_OF.get(text, {"base": text})
    table = {}
    for pair in text.split(","):
        role, equals, model = pair.partition("=")
        if not equals or role in table:
            return None
        table[role] = model
    return table


def _check_suites(origin: str, names: Collection[str], suites: Collection[str]) -> None:
    """Raise UserError for an unknown suite whose name is close to one of the run's.

    Other unknown names are allowed: a table of models may serve runs with suites of plugins.
    """
    known = {name.lower(): name for name in suites}
    for name in set(names) - {*suites, *SUITES}:
        near = get_close_matches(name.lower(), known, n=1)
        if near:
            raise UserError(f"{origin} names the suite {name}; did you mean {known[near[0]]}?")


def with_tuned_roles(roles: Roles, presets: Mapping[str, Preset]) -> Roles:
    """The table with one more role for each tuned method that has other roles on other suites.

    The new role is named by the method's key, so that a method has one role in the configuration.

    Args:
        roles: the table of models.
        presets: the methods by key.

    Raises:
        UserError: the table lacks a role.
    """
    table = dict(roles)
    for key, preset in presets.items():
        if not preset.roles:
            continue
        for role in {preset.role, *preset.roles.values()}:
            if role not in roles:
                raise UserError(f"method {key} needs the role {role}: --model base=...,{role}=...")
        table[key] = {
            suite: roles[preset.roles.get(suite, preset.role)][suite] for suite in roles["base"]
        }
    return table


def methods_of(
    presets: Mapping[str, Preset],
    suites: Mapping[str, Suite],
    roles: Roles,
    small: Collection[str],
    common: Mapping[str, Any],
    published: bool = False,
) -> dict[str, Method]:
    """The methods of a run by key, each with its checkpoint, and its setting on every suite.

    Args:
        presets: the methods by key.
        suites: the suites by name.
        roles: the table of models.
        small: the suites on which a small model's lengths are used.
        common: lengths and options that all methods share.
        published: give the decoder that a model's authors use their options.

    Raises:
        UserError or ValueError: a method has no checkpoint, or settings that do not fit.
    """
    base = roles["base"]
    defaults = {
        name: suite.settings_for(base[name], name in small) for name, suite in suites.items()
    }
    families = {name: "" if name in small else family_of(base[name]) for name in suites}
    methods = {}
    for key, preset in presets.items():
        # A tuned method may have settings for suites that this run does not decode.
        if not preset.tuned_on:
            _check_suites(f"method {key}", preset.suites, suites)
        role = _role_of(key, preset, roles)
        draft_role = preset.draft_role
        if draft_role is None and "draft" in roles and preset.decoder.takes("draft"):
            draft_role = "draft"
        # The base model stands in for the trained one: the row must not look like FeF-DLLM's.
        label = preset.row
        if role == "base" != preset.role:
            label = label.replace("FeF-DLLM", "FeF-DLLM w/o train", 1)
        settings = {
            name: setting_of(
                preset,
                name,
                defaults[name],
                common,
                families[name],
                blocks_of(roles[role][name]),
                base[name] if published else "",
            )
            for name in suites
        }
        methods[key] = Method(
            label=label,
            method=preset.decoder.name,
            role=role,
            draft_role=draft_role,
            suites=settings,
        )
    return _distinct(with_schedules(methods, roles))


def _role_of(key: str, preset: Preset, roles: Roles) -> str:
    """The role whose checkpoint decodes a method: the preset's, or the first fallback.

    Raises:
        UserError: the table has none of these, or lacks the role of its drafts.
    """
    candidates = [key if preset.roles else preset.role]
    if preset.decoder.prefix_conditioned or preset.decoder.causal:
        candidates += STAND_INS.get(preset.role, ())
    available = [role for role in candidates if role in roles]
    missing = preset.draft_role if available else preset.role
    # None: no draft role is wanted.
    if missing not in (None, *roles):
        raise UserError(f"method {key} needs the role {missing}: --model base=...,{missing}=...")
    return available[0]


def _distinct(methods: dict[str, Method]) -> dict[str, Method]:
    """The methods with distinct labels: where several have the same, the later ones show their
    keys."""
    labels: set[str] = set()
    distinct = {}
    for name, method in methods.items():
        # Compared as a table shows it, with single spaces.
        label = " ".join(method.label.split())
        distinct[name] = replace(method, label=f"{label} [{name}]" if label in labels else label)
        labels.add(label)
    return distinct
