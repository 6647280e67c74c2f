"""A run's card: what it was made with, as nested tables, and what to doubt."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pandas as pd

from harness.measures.table import timed
from harness.records.store import Run
from tables.sheets.captions import setting, timing

Tree = dict[str, Any] | list[Any] | str


@dataclass(frozen=True)
class Card:
    """What a page says of a run. sections: title -> tree of texts. warnings: sentences."""

    name: str
    summary: tuple[str, ...]
    warnings: tuple[str, ...]
    sections: dict[str, Tree]


def card_of(run: Run, name: str, measured: pd.DataFrame) -> Card:
    """The card of a run. measured: its rows of `table.measure`."""
    meta = run.meta
    doubts = timing(run)
    scoring = meta.scoring or {}
    warnings = [
        *doubts,
        *(f"{suite} is not scored: {why}" for suite, why in (scoring.get("not_scored") or {}).items()),
        *(f"Scoring: this machine did not enforce {each}." for each in scoring.get("not_enforced") or []),
    ]
    parts: dict[str, Any] = {
        "Run": {
            "name": meta.name,
            "folder": run.folder.name,
            "created": meta.created,
            "configuration": meta.config_hash,
            "items": len(run.items),
            "seconds are for comparison": timed(run),
            "traced": run.config.traced,
        },
        "Configuration": meta.config.to_json(),
        "Environment": meta.environment,
        "Weights": meta.weights,
        "Problems": meta.data,
        "Code": meta.code,
        "Plugins": msgspec.to_builtins(meta.plugins),
        "Sessions": meta.sessions,
        "Scoring": scoring,
    }
    sections = {title: tree_of(part) for title, part in parts.items() if part}
    return Card(name, tuple(setting(measured, run)), tuple(warnings), sections)


def tree_of(value: Any) -> Tree:
    """Any JSON as nested tables and lists of texts."""
    if isinstance(value, dict):
        return {str(name): tree_of(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        plain = all(not isinstance(each, dict | list | tuple) for each in value)
        return ", ".join(str(tree_of(each)) for each in value) if plain else [tree_of(each) for each in value]
    return {True: "yes", False: "no", None: "-"}[value] if isinstance(value, bool) or value is None else str(value)
