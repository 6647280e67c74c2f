"""Check that the files of a run agree, and list the differences between two configurations.

Items must agree with the configuration, and windows with their items. Records that disagree would
still give a plausible table, so such a run is refused.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harness.errors import UserError
from harness.records.schema import RunRecord
from model_wrappers.options import first_few

KEY = ("method", "suite", "item")
# With the key, these identify a window.
WINDOW = ("step", "round", "start")
# Fields of an item that are the sums of its windows' fields.
SUMS = ("proposed", "accepted", "committed", "rejected")
# The most rows that a message names.
SHOWN = 3


def check_run(
    folder: Path,
    meta: RunRecord,
    items: pd.DataFrame,
    windows: pd.DataFrame,
) -> None:
    """Check that the records of a run agree. Fields that are missing are not checked.

    Args:
        folder: of the run, for the message.
        meta: run.json.
        items: items.jsonl, a row per line.
        windows: windows.jsonl, a row per line.

    Raises:
        UserError: they do not agree; the message names every contradiction.
    """
    contradictions = [
        *_duplicate_rows(items, "items", KEY),
        *_unknown_names(meta, items),
        *_differing_prompts(meta, items),
    ]
    if len(windows):
        contradictions += [
            *_duplicate_rows(windows, "windows", (*KEY, *WINDOW)),
            *_wrong_sums(items, windows),
        ]
    if contradictions:
        raise UserError(
            f"{folder}: the records disagree, and no table can be made of them:"
            f" {'; '.join(contradictions)}"
        )


def of_items(frame: pd.DataFrame, items: pd.DataFrame) -> pd.DataFrame:
    """The rows of windows or passes whose item is recorded.

    They are written before their item, so a run that is killed may leave some without one.
    """
    if frame.empty or items.empty:
        return frame.head(0)
    known = pd.MultiIndex.from_frame(items[list(KEY)])
    has_item = pd.MultiIndex.from_frame(frame[list(KEY)]).isin(known)
    # No copy in the usual case: windows may be millions.
    return frame if has_item.all() else frame[has_item].reset_index(drop=True)


def _duplicate_rows(frame: pd.DataFrame, name: str, key: tuple[str, ...]) -> Iterator[str]:
    """A contradiction if several rows of a file have the same key."""
    # An older record may lack a column of the key.
    if len(frame) and set(key) <= set(frame):
        again = frame[frame.duplicated(list(key))]
        if len(again):
            yield f"{name}.jsonl: {_rows(again, key)} is there twice"


def _unknown_names(meta: RunRecord, items: pd.DataFrame) -> Iterator[str]:
    """Items of methods or suites that are not the run's."""
    for column, known in (("method", meta.config.methods), ("suite", meta.config.suites)):
        unknown = sorted(set(items.get(column, ())) - set(known))
        if known and unknown:
            yield f"items.jsonl: {column} {', '.join(unknown)} is not in run.json's configuration"


def numbers_of(meta: RunRecord) -> dict[str, Sequence[int]]:
    """The numbers of the items that a finished run has, by suite.

    They follow from the recorded number of items, or else from the limit. A suite for which neither
    is known is left out.
    """
    limit = meta.config.limit
    draws = len(meta.config.draws)
    # A suite with a colon is a configuration of OpenCompass. The limit applies to each of its
    # datasets, so that the number of all its items does not follow from it.
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


def _differing_prompts(meta: RunRecord, items: pd.DataFrame) -> Iterator[str]:
    """Items whose prompt is not the same for all methods."""
    if "prompt_hash" not in items:
        return
    # The model of the role `ar` may have a tokenizer of its own, and so another hash.
    autoregressive = [name for name, method in meta.config.methods.items() if method.role == "ar"]
    rows = items[items["prompt_hash"].notna() & ~items["method"].isin(autoregressive)]
    prompts = rows.groupby(["suite", "item"], sort=False)["prompt_hash"].nunique()
    several = prompts[prompts > 1].reset_index()
    if len(several):
        named = _rows(several, ("suite", "item"))
        yield (
            f"items.jsonl: {named} has more than one prompt, so that methods had different problems"
        )


def _wrong_sums(items: pd.DataFrame, windows: pd.DataFrame) -> Iterator[str]:
    """Items whose counts are not the sums of their windows' counts."""
    # A window ends at its first rejected draft, so that it has one rejected draft or none.
    if {"proposed", "accepted"} <= set(windows):
        windows = windows.assign(rejected=windows["accepted"] < windows["proposed"])
    columns = [name for name in SUMS if name in items and name in windows]
    # Without the drafts that were proposed, in items or windows, nothing can be compared.
    if "proposed" not in columns:
        return
    counted = items[items["proposed"].notna()].set_index(list(KEY))
    sums = windows.groupby(list(KEY), sort=False)[columns].sum().reindex(counted.index)
    # Users may delete windows, also of some items alone: these are not checked.
    has_windows = sums.notna().all(axis=1)
    for name in columns:
        wrong = counted[has_windows & counted[name].notna() & sums[name].ne(counted[name])]
        if len(wrong):
            yield (
                f"items.jsonl: {name} of {_rows(wrong.reset_index())} is not the sum over its"
                " windows"
            )


def _rows(frame: pd.DataFrame, key: tuple[str, ...] = KEY) -> str:
    """The keys of the first rows, and the number of further ones."""
    return first_few((" ".join(map(str, row)) for row in frame[list(key)].to_numpy()), SHOWN)


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """The differences between a recorded configuration and a present one.

    A key that one of them lacks counts as None.

    Args:
        before: the recorded configuration, or a part of it.
        after: the present one, or the same part of it.
        path: the dotted path of the part; "" for the whole.

    Returns:
        A text for each difference: the path, the recorded value and the present one.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        keys = [*before, *(key for key in after if key not in before)]
        return [
            difference
            for key in keys
            for difference in differences(
                before.get(key), after.get(key), f"{path}.{key}" if path else str(key)
            )
        ]
    # One of them may be a whole table where the other has a value: too long to be shown.
    then, now = ("all of it" if isinstance(value, dict) else value for value in (before, after))
    return [] if before == after else [f"{path} ({then} there, {now} now)"]
