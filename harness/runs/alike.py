"""Whether the workers of a run are alike: what makes tokens must be, and devices unless they are allowed by name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from harness.errors import UserError
from harness.runs.folder import SAME_MACHINE, unlike

BOTH = " and "  # between the names of unlike devices


def device_name(description: dict[str, Any]) -> str:
    """The GPU of a worker, or its processor, as run.json names it; description: as `harness.runs.folder.made_with`."""
    environment = description["environment"]
    return str(environment.get("gpu") or environment.get("cpu"))


def check_alike(first: dict[str, Any], other: dict[str, Any], worker: str, allowed: Collection[str]) -> None:
    """Raise UserError if a worker has other weights, problems, code or packages than the first, or another device.

    first, other: what each has, as `harness.runs.folder.made_with` says. worker: the other's name. allowed: the devices
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
