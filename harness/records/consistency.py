"""Whether what a run's files say of each other agrees, items with the configuration, windows with
their items; and in what two records differ.

Numbers that disagree would give a plausible table, so that a run is refused where they do.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harness.errors import UserError
from harness.records.schema import RunRecord

KEY = ("method", "suite", "item")
WINDOW = ("step", "round", "start")  # with the key, which window it is
SUMS = ("proposed", "accepted", "committed", "rejected")  # of an item, those of its windows
SHOWN = 3  # rows that are named


def check_run(
    folder: Path,
    meta: RunRecord,
    items: pd.DataFrame,
    windows: pd.DataFrame | None,
    passes: pd.DataFrame,
) -> None:
    """Raise UserError, naming every contradiction, unless the records of a run agree, as far as
    they say something.

    windows: None, or no rows, where the record has none.
    """
    found = [
        *_twice(items, "items", KEY),
        *_unknown(meta, {"items": items, "passes": passes}),
        *_prompts(meta, items),
        *_twice(passes, "passes", KEY),
    ]
    if windows is not None and len(windows):
        found += [*_twice(windows, "windows", (*KEY, *WINDOW)), *_sums(items, windows)]
    if found:
        raise UserError(
            f"{folder}: the records disagree, and no table can be made of them: {'; '.join(found)}"
        )


def of_items(frame: pd.DataFrame, items: pd.DataFrame) -> pd.DataFrame:
    """The rows of windows or passes whose item is there: an item in flight leaves some when a run
    is killed."""
    if frame.empty or items.empty:
        return frame.head(0)
    known = pd.MultiIndex.from_frame(items[list(KEY)])
    there = pd.MultiIndex.from_frame(frame[list(KEY)]).isin(known)
    return frame if there.all() else frame[there].reset_index(drop=True)


def _twice(frame: pd.DataFrame, name: str, key: tuple[str, ...]) -> Iterator[str]:
    if len(frame) and set(key) <= set(frame):
        again = frame[frame.duplicated(list(key))]
        if len(again):
            yield f"{name}.jsonl: {_rows(again, key)} is there twice"


def _unknown(meta: RunRecord, frames: dict[str, pd.DataFrame]) -> Iterator[str]:
    """Rows of methods or suites that are not the run's."""
    config = meta.config
    for file, frame in frames.items():
        for column, known in (("method", config.methods), ("suite", config.suites)):
            if len(frame) and known:
                others = sorted(set(frame[column]) - set(known))
                if others:
                    yield (
                        f"{file}.jsonl: {column} {', '.join(others)} is not in the configuration of"
                        " run.json"
                    )


def numbers_of(meta: RunRecord) -> dict[str, Sequence[int]]:
    """The numbers of the items that a run has of each suite, as far as it says: by the number of
    problems, or else the limit."""
    limit = meta.config.limit
    # Of a configuration by name the limit is that of each of its datasets.
    draws = len(meta.config.draws)
    totals = {
        suite: limit * draws
        for suite in meta.config.suites
        if limit is not None and ":" not in suite
    }
    totals |= {
        suite: file["items"]
        for suite, file in meta.files.items()
        if isinstance(file.get("items"), int)
    }
    return {suite: meta.config.numbers(suite, total) for suite, total in totals.items()}


def _prompts(meta: RunRecord, items: pd.DataFrame) -> Iterator[str]:
    """Items that had one prompt for some methods and another for others; the role `ar` may have its
    own tokenizer."""
    if "prompt_hash" not in items:
        return
    apart = [name for name, method in meta.config.methods.items() if method.role == "ar"]
    rows = items[items["prompt_hash"].notna() & ~items["method"].isin(apart)]
    prompts = rows.groupby(["suite", "item"], sort=False)["prompt_hash"].nunique()
    unlike = prompts[prompts > 1].reset_index()
    if len(unlike):
        named = _rows(unlike, ("suite", "item"))
        yield (
            f"items.jsonl: {named} has more than one prompt, so that methods had different problems"
        )


def _sums(items: pd.DataFrame, windows: pd.DataFrame) -> Iterator[str]:
    """Items whose windows do not sum to what the item says."""
    if {"proposed", "accepted"} <= set(windows):
        windows = windows.assign(rejected=windows["accepted"] < windows["proposed"])
    columns = [name for name in SUMS if name in items and name in windows]
    if "proposed" not in columns:
        return
    counted = items[items["proposed"].notna()].set_index(list(KEY))
    sums = windows.groupby(list(KEY), sort=False)[columns].sum().reindex(counted.index)
    there = sums.notna().all(axis=1)  # items whose windows were deleted have none
    for name in columns:
        other = counted[there & counted[name].notna() & sums[name].ne(counted[name])]
        if len(other):
            yield (
                f"windows.jsonl: what the windows of {_rows(other.reset_index())} {name} is not"
                " what the item says"
            )


def _rows(frame: pd.DataFrame, key: tuple[str, ...] = KEY) -> str:
    """The first rows, by their keys, and how many more there are."""
    named = [
        " ".join(str(value) for value in row) for row in frame[list(key)].head(SHOWN).to_numpy()
    ]
    more = f" and {len(frame) - SHOWN} more" if len(frame) > SHOWN else ""
    return f"{', '.join(named)}{more}"


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """What differs between two configurations, as dotted paths with both values."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = [*before, *(key for key in after if key not in before)]
        return [
            difference
            for key in keys
            for difference in differences(
                before.get(key), after.get(key), f"{path}.{key}" if path else str(key)
            )
        ]
    there, now = ("all of it" if isinstance(each, dict) else each for each in (before, after))
    return [] if before == after else [f"{path} ({there} there, {now} now)"]
