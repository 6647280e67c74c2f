"""What must be the same for a run to go on, for workers to share one, and for two to be compared.

What makes tokens or seconds is a flat table, dotted name -> value. Only names that both tables have
are compared: a method or a suite that one of the two runs lacks is no contradiction.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from harness.errors import UserError
from harness.records.consistency import differences
from harness.records.schema import RunConfig

Table = dict[str, Any]

# Fields of a configuration that make tokens, and those that seconds depend on too.
TOKENS = (
    "temperature",
    "seed",
    "seeds",
    "device",
    "device_map",
    "dtype",
    "compile",
    "graphs",
    "timed",
    "trust_remote_code",
    "reads_at",
    "prompt",
    "chat_template_args",
)
SECONDS = ("threads", "batch")
# Packages whose versions make tokens, and what seconds depend on.
PACKAGES = ("torch", "transformers", "tokenizers")
MACHINE = ("platform", "cpu", "cpu_capability", "gpu")
# What may differ between sessions, and is noted.
NOTED = ("commit", "version", "python", "packages")
# Between the names of unlike devices, in the one text that run.json has for them.
BOTH = " and "


def settings(config: RunConfig, seconds: bool) -> Table:
    """The settings of a configuration that determine tokens.

    Args:
        config: of a run.
        seconds: include the settings that only seconds depend on.
    """
    values = to_builtins(config)
    names = (*TOKENS, *SECONDS) if seconds else TOKENS
    table = {name: values.get(name) for name in names}
    # Hashes of real problems may differ between sessions, and are in `session_facts`.
    table["data"] = config.data if config.generated else "files"
    for role, models in config.models.items():
        for suite, model in models.items():
            table[f"models.{role}.{suite}"] = model
    for name, method in config.methods.items():
        table[f"{name}.method"] = method.method
        table[f"{name}.role"] = method.role
        table[f"{name}.draft_role"] = method.draft_role
        for suite, setting in method.suites.items():
            table[f"{name}.suites.{suite}"] = to_builtins(setting)
    return table


def provenance(description: Mapping[str, Any], machine: bool) -> Table:
    """The packages, weights, options and plugins of a run that determine its tokens.

    Args:
        description: run.json, or what `harness.runs.describe.made_with` returns.
        machine: include the machine, on which seconds depend.
    """
    environment = description["environment"]
    packages = environment.get("packages") or {}
    table = {f"packages.{name}": packages.get(name) for name in PACKAGES}
    if machine:
        table |= {f"machine.{name}": environment.get(name) for name in MACHINE}
    for name, weights in description["weights"].items():
        table[f"weights.{name}"] = weights
    options = (description.get("code") or {}).get("options") or {}
    for method, suites in options.items():
        for suite, values in suites.items():
            # One by one: an option that an older record lacks is at its default, which changed no
            # token when the option came.
            for name, value in values.items():
                table[f"options.{method}.{suite}.{name}"] = value
    # By file name and hash: a plugin may lie in another folder in the next session.
    for plugin in description.get("plugins", []):
        table[f"plugins.{Path(plugin['path']).name}"] = plugin["sha256"]
    return table


def session_facts(description: Mapping[str, Any]) -> Table:
    """What may differ between the sessions of a run: commit, packages, problems. run.json notes
    it."""
    table = {name: description["environment"].get(name) for name in NOTED}
    files = description["data"].get("files") or {}
    for suite, file in files.items():
        table[f"data.{suite}.sha256"] = file.get("sha256")
    return table


def table_differences(before: Table, now: Table) -> list[str]:
    """The differences of two tables in the names that both have, each with both values."""
    lines = []
    for name, value in before.items():
        if name in now:
            lines += differences(value, now[name], name)
    return lines


def device_name(description: Mapping[str, Any]) -> str:
    """The GPU that a worker decodes on, or else its processor, as run.json names it."""
    environment = description["environment"]
    return str(environment.get("gpu") or environment.get("cpu"))


def check_workers_alike(
    first: dict[str, Any], other: dict[str, Any], worker: str, timed: bool
) -> None:
    """Refuse a worker that would decode something else than the first one, or on another device.

    In an untimed run the devices may differ. The description of the first worker is then changed in
    place: it names both devices.

    Args:
        first: the first worker's description, as `harness.runs.describe.made_with` returns it.
        other: the other worker's description.
        worker: the other worker's name, for the message.
        timed: whether seconds are compared.

    Raises:
        UserError: other weights, problems, code or packages; in a timed run another device.
    """
    changed = [
        *table_differences(provenance(first, machine=False), provenance(other, machine=False)),
        *table_differences(session_facts(first), session_facts(other)),
    ]
    if changed:
        raise UserError(
            f"worker {worker} has something else than the first one: {'; '.join(changed)}"
        )
    first_machine = first["environment"]
    other_machine = other["environment"]
    mixed = {}
    for part in MACHINE:
        # The first description may name several devices already, from earlier workers.
        values = {*str(first_machine.get(part)).split(BOTH), str(other_machine.get(part))}
        if len(values) > 1:
            mixed[part] = BOTH.join(sorted(values))
    if timed and mixed:
        raise UserError(
            f"the workers have unlike devices, {'; '.join(mixed.values())}, whose seconds would be"
            " mixed; add --untimed"
        )
    first_machine |= mixed
