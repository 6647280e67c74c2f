"""The runs of a report as one book: series (a method of a run), suites, and every item under numbers of these."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from harness.errors import UserError
from harness.measures.table import REFERENCE, method_labels, suite_titles
from harness.records.store import KEY, Run

RESPONSES = 100  # about how many a data file holds


@dataclass(frozen=True)
class Series:
    """A method of a run. name: what pages call it; reference: the series that it is compared with, LLaDA's of its run,
    by number; None where the run has none.
    """

    run: int
    method: str
    name: str
    reference: int | None


@dataclass(frozen=True)
class Suite:
    """A suite with its problems: runs that have other problems under one name have suites of their own."""

    key: str
    title: str
    digest: str


@dataclass(frozen=True)
class Book:
    """Runs to be shown together. suite_numbers: of every run, the number of each of its suites."""

    runs: tuple[Run, ...]
    names: tuple[str, ...]
    series: tuple[Series, ...]
    suites: tuple[Suite, ...]
    suite_numbers: tuple[dict[str, int], ...]

    @cached_property
    def series_numbers(self) -> dict[tuple[int, str], int]:
        """The number of each series by run and method."""
        return {(each.run, each.method): number for number, each in enumerate(self.series)}

    @property
    def items_a_file(self) -> int:
        """How many items of a suite share a data file."""
        return max(1, RESPONSES // len(self.series))

    @cached_property
    def items(self) -> pd.DataFrame:
        """All items of all runs, by suite, item and series: the records' columns, `series` and `suite` as numbers."""
        items = pd.concat([self.numbered(number, run.items) for number, run in enumerate(self.runs)], ignore_index=True)
        return items.sort_values(["suite", "item", "series"], kind="stable", ignore_index=True)

    def numbered(self, run: int, frame: pd.DataFrame) -> pd.DataFrame:
        """A run's items or windows, with `series` and `suite` as numbers."""
        if frame.empty:
            return pd.DataFrame(columns=["series", "suite", "item"])
        series = frame["method"].map({m: n for (r, m), n in self.series_numbers.items() if r == run})
        return frame.assign(series=series, suite=frame["suite"].map(self.suite_numbers[run])).drop(columns=[KEY[0]])


def open_book(runs: Sequence[Run]) -> Book:
    """The book of runs, in their order. Raises UserError for a run without items."""
    for run in runs:
        if run.items.empty:
            raise UserError(f"{run.folder} holds no items yet; there is nothing to show")
    names = _distinct([run.meta.name or run.folder.name for run in runs])
    series: list[Series] = []
    suites: list[Suite] = []
    numbers: list[dict[str, int]] = []
    for number, run in enumerate(runs):
        held = set(run.items["method"].unique())
        labels = {method: label for method, label in method_labels(run).items() if method in held}
        reference = len(series) + list(labels).index(REFERENCE) if REFERENCE in labels else None
        series += [
            Series(number, method, label if len(runs) == 1 else f"{label} ({names[number]})", reference)
            for method, label in labels.items()
        ]
        numbers.append(_suite_numbers(run, names[number], suites))
    return Book(tuple(runs), tuple(names), tuple(series), tuple(suites), tuple(numbers))


def _suite_numbers(run: Run, name: str, suites: list[Suite]) -> dict[str, int]:
    """The number of each suite of a run in `suites`, to which those are added that are not there yet."""
    found, held = {}, set(run.items["suite"].unique())
    for key, title in suite_titles(run).items():
        if key not in held:
            continue
        digest = str((run.meta.data.get("files") or {}).get(key, {}).get("sha256", ""))
        same = [number for number, each in enumerate(suites) if (each.key, each.digest) == (key, digest)]
        if not same:
            again = any(each.key == key for each in suites)
            suites.append(Suite(key, f"{title} ({name})" if again else title, digest))
        found[key] = same[0] if same else len(suites) - 1
    return found


def _distinct(names: list[str]) -> list[str]:
    """The names, the later ones of several equal ones with a number behind."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return found


def numbers_of(frame: pd.DataFrame, name: str, digits: int = 0) -> list[Any]:
    """A column as JSON has it: numbers, of integers without a point, None where there is none."""
    if name not in frame:
        return [None] * len(frame)
    values = pd.to_numeric(frame[name], errors="coerce").to_numpy(float, na_value=np.nan)
    rounded = np.round(values, digits)
    return [None if np.isnan(v) else (int(v) if digits == 0 else float(v)) for v in rounded]
