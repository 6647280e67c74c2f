"""What every caption says of a run: the model, how many items, and the machine."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import pandas as pd

from harness.records import Run
from tables.measures import suite_titles


def setting(measured: pd.DataFrame, run: Run) -> list[str]:
    """Sentences for a caption: the model, items per suite, and the environment's device, threads and dtype."""
    meta = run.meta
    models = _models(meta)
    names = list(dict.fromkeys(PurePath(model["name"]).name for model in models.values()))
    sentence = f"Measured on {', '.join(names) or 'an unnamed model'}."
    if any(part.split("-")[0] == "nano" for model in models.values() for part in PurePath(model["name"]).parts):
        parameters = next((model["parameters"] for model in models.values() if model.get("parameters")), None)
        size = f"{float(parameters) / 1e6:.1f} M parameter" if parameters else "small"
        checkpoints = f" (checkpoints: {', '.join(names)})" if names != ["nano"] else ""
        sentence = (
            f"Measured on nano, the {size} model shipped with this repository"
            f"{checkpoints}; not comparable with the paper's 8B results."
        )
    counts = measured.groupby("suite")["items"].max()
    if counts.nunique() == 1:
        items = f"{counts.iloc[0]} items per suite."
    else:
        titles = suite_titles(run)
        items = f"Items: {', '.join(f'{titles[suite]} {counts[suite]}' for suite in titles if suite in counts)}."
    return [sentence, items, *_machine(meta)]


def _models(meta: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Role -> {name, ...}, from `weights` or, failing that, the configuration."""
    weights = meta.get("weights") or {}
    models = {role: model for role, model in weights.items() if isinstance(model, dict) and model.get("name")}
    if models:
        return models
    chosen = meta["config"].get("model") or {}
    return {role: {"name": name} for role, name in chosen.items() if isinstance(name, str)}


def _machine(meta: dict[str, Any]) -> list[str]:
    environment = meta.get("environment") or {}
    device = str(environment.get("device") or "")
    processor = environment.get("gpu") if device.startswith("cuda") else environment.get("cpu")
    threads = environment.get("threads")
    known = [
        f"{device} ({processor})" if device and processor else device or str(processor or ""),
        f"{threads} thread{'' if threads == 1 else 's'}" if threads else "",
        str(environment.get("dtype") or ""),
    ]
    text = ", ".join(part for part in known if part)
    return [f"Environment: {text}."] if text else []
