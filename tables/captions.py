"""What every caption says of a run: the model, how many items, and the machine."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import pandas as pd

from harness.records import Run
from tables.measures import suite_titles

SMALL = 1e9  # fewer parameters than this are no size to compare with the paper's 8B
INCOMPARABLE = "not comparable with the paper's 8B results."


def setting(measured: pd.DataFrame, run: Run) -> list[str]:
    """Sentences for a caption: the model, the problems, items per suite, and the device, threads and dtype.

    From run.json's `weights` ({..: {name, parameters}}), `config.data` (a word where problems are generated, else the
    files' hashes) and `environment` (device, cpu, gpu, threads, dtype); what is missing there is left out.
    """
    counts = measured.groupby("suite")["items"].max()
    if counts.nunique() == 1:
        items = f"{counts.iloc[0]} item{'' if counts.iloc[0] == 1 else 's'} per suite"
    else:
        titles = suite_titles(run)
        items = f"Items: {', '.join(f'{titles[suite]} {counts[suite]}' for suite in titles if suite in counts)}"
    generated = ", generated in the suites' formats" if isinstance(run.meta["config"].get("data"), str) else ""
    return [_models(run.meta), f"{items}{generated}.", *_stops(run.meta), *_machine(run.meta)]


def _models(meta: dict[str, Any]) -> str:
    weights = (meta.get("weights") or {}).values()
    models = [model for model in weights if isinstance(model, dict) and isinstance(model.get("name"), str)]
    names = list(dict.fromkeys(PurePath(model["name"]).name for model in models))
    parameters = max((float(model.get("parameters") or 0) for model in models), default=0.0)
    size = f"{parameters / 1e9:.1f} B" if parameters >= SMALL else f"{parameters / 1e6:.1f} M"
    if models and all(_is_nano(model["name"]) for model in models):
        checkpoints = f" (checkpoints: {', '.join(names)})" if names != ["nano"] else ""
        kind = f"{size} parameter" if parameters else "small"
        return f"Measured on nano, the {kind} model shipped with this repository{checkpoints}; {INCOMPARABLE}"
    largest = "at most " if len(names) > 1 else ""
    named = (", ".join(names) or "an unnamed model") + (f" ({largest}{size} parameters)" if parameters else "")
    return f"Measured on {named}; {INCOMPARABLE}" if 0 < parameters < SMALL else f"Measured on {named}."


def _is_nano(name: str) -> bool:
    """Whether a model's name or folder is nano, or one of its checkpoints (nano-...)."""
    return any(part.split("-")[0] == "nano" for part in PurePath(name).parts)


def _stops(meta: dict[str, Any]) -> list[str]:
    """Whether decoding ends at EOS, a setting of all methods alike."""
    methods = (meta["config"].get("methods") or {}).values()
    options = [suite.get("options", {}) for method in methods for suite in (method.get("suites") or {}).values()]
    return ["Decoding ends at EOS."] if any(each.get("stop_at_eos") for each in options) else []


def _machine(meta: dict[str, Any]) -> list[str]:
    environment = meta.get("environment") or {}
    device = str(environment.get("device") or "")
    processor = environment.get("gpu") if device.startswith("cuda") else environment.get("cpu")
    threads = environment.get("threads")
    known = [
        f"{device} ({processor})" if device and processor else device or str(processor or ""),
        f"{threads} thread{'' if threads == 1 else 's'}" if threads else "",
        str(environment.get("dtype") or ""),
        "torch.compile" if meta["config"].get("compile") else "",
    ]
    text = ", ".join(part for part in known if part)
    return [f"Environment: {text}."] if text else []
