"""Whether what a run's files say of each other agrees, items with the configuration, windows with their items; and in
what two records differ.

Numbers that disagree would give a plausible table, so that a run is refused where they do.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from harness.errors import UserError
from harness.records.schema import RunConfig, RunRecord, item_seed, judged_hash

KEY = ("method", "suite", "item")
WINDOW = ("step", "round", "start")  # with the key, which window it is
SUMS = ("proposed", "accepted", "committed", "rejected")  # of an item, those of its windows
# Of a record the first is never more than the second.
ORDERED = (
    *(("accepted", "proposed"), ("rejected", "proposed"), ("forwards", "rows"), ("rows", "token_forwards")),
    *((f"draft_{name}", name) for name in ("forwards", "rows", "token_forwards")),
    *(("first_block_seconds", "content_seconds"), ("content_seconds", "seconds"), ("first_block_seconds", "seconds")),
)
SHOWN = 3  # rows that are named


def check_run(
    folder: Path, meta: RunRecord, items: pd.DataFrame, windows: pd.DataFrame | None, passes: pd.DataFrame
) -> None:
    """Raise UserError, naming every contradiction, unless the records of a run agree, as far as they say something.

    windows: None where the record has none by its nature.
    """
    found = [
        *_twice(items, "items", KEY),
        *_unknown(meta, {"items": items, "passes": passes}),
        *_impossible(items, "items"),
        *_lengths(meta.config, items),
        *_problems(meta, items),
        *_verdicts(items),
        *_twice(passes, "passes", KEY),
    ]
    if windows is not None:
        found += [
            *_twice(windows, "windows", (*KEY, *WINDOW)),
            *_impossible(windows, "windows"),
            *_steps(meta.config, windows),
            *_sums(items, windows),
        ]
    if found:
        raise UserError(f"{folder}: the records disagree, and no table can be made of them: {'; '.join(found)}")


def of_items(frame: pd.DataFrame, items: pd.DataFrame) -> pd.DataFrame:
    """The rows of windows or passes whose item is there: an item in flight leaves some when a run is killed."""
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
    """Rows of methods, suites or items that are not the run's."""
    config, counts = meta.config, counts_of(meta)
    for file, frame in frames.items():
        for column, known in (("method", config.methods), ("suite", config.suites)):
            if len(frame) and known:
                others = sorted(set(frame[column]) - set(known))
                if others:
                    yield f"{file}.jsonl: {column} {', '.join(others)} is not in the configuration of run.json"
        for suite, count in counts.items():
            beyond = frame[(frame["suite"] == suite) & (frame["item"] >= count)] if len(frame) else frame
            if len(beyond):
                yield f"{file}.jsonl: {_rows(beyond)} is beyond the run's items of {suite}, 0 to {count - 1}"


def counts_of(meta: RunRecord) -> dict[str, int]:
    """How many items a run has of each suite, as far as it says: the number of problems, or else the limit."""
    files, limit = meta.data.get("files") or {}, meta.config.limit
    # Of a configuration by name the limit is that of each of its datasets.
    draws = len(meta.config.draws)
    counts = {suite: limit * draws for suite in meta.config.suites if limit is not None and ":" not in suite}
    return counts | {suite: file["items"] for suite, file in files.items() if isinstance(file.get("items"), int)}


def _impossible(frame: pd.DataFrame, name: str) -> Iterator[str]:
    for less, more in ORDERED:
        if {less, more} <= set(frame):
            other = frame[frame[less].astype(float) > frame[more].astype(float)]
            if len(other):
                yield f"{name}.jsonl: {_rows(other)} has more {less} than {more}"


def _lengths(config: RunConfig, items: pd.DataFrame) -> Iterator[str]:
    """Responses whose tokens do not sum to the configuration's."""
    counts = ["content_tokens", "eos_tokens", "post_stop_tokens"]
    if not set(counts) <= set(items):
        return
    wanted = {
        (name, suite): setting.gen_length
        for name, method in config.methods.items()
        for suite, setting in method.suites.items()
    }
    pairs = zip(items["method"], items["suite"], strict=True)
    length = pd.Series([wanted.get(pair) for pair in pairs], items.index, dtype=float)
    total = items[counts].sum(axis=1, skipna=False)
    more = items[counts].astype(float).gt(length, axis=0).any(axis=1)
    other = items[length.notna() & ((total.notna() & length.ne(total)) | more)]
    if len(other):
        yield f"items.jsonl: the tokens of {_rows(other)} do not sum to the generation length of the configuration"


def _problems(meta: RunRecord, items: pd.DataFrame) -> Iterator[str]:
    """Problems that had one prompt or solution for some methods or seeds and another for others; other seeds.

    The prompts of the role `ar` may be of another tokenizer.
    """
    if items.empty:
        return
    draws, files = meta.config.draws, meta.data.get("files") or {}
    counts = {suite: file["items"] // len(draws) for suite, file in files.items() if isinstance(file.get("items"), int)}
    known = counts if len(draws) > 1 else {}
    pairs = zip(items["suite"], items["item"], strict=True)
    numbers = [divmod(item, known.get(suite) or item + 1) for suite, item in pairs]
    rows = items.assign(draw=[draw for draw, _ in numbers], problem=[problem for _, problem in numbers])
    own = [name for name, method in meta.config.methods.items() if method.role == "ar"]
    for column in ("prompt_hash", "prompt_tokens", "gold"):
        if column in rows:
            told = rows[rows[column].notna()]
            apart = told["method"].isin([] if column == "gold" else own)
            values = told.groupby(["suite", "problem", apart], sort=False)[column].nunique()
            if (values > 1).any():
                named = _rows(values[values > 1].reset_index(), ("suite", "problem"))
                yield f"items.jsonl: {named} has more than one {column}, so that methods had different problems"
    if "seed" in rows and meta.config.seed is not None:
        told = rows[rows["seed"].notna() & (rows["draw"] < len(draws))]
        drawn = zip(told["draw"], told["suite"], told["problem"], strict=True)
        other = told[told["seed"] != [item_seed(draws[draw], suite, problem) for draw, suite, problem in drawn]]
        if len(other):
            yield f"items.jsonl: {_rows(other)} has another seed than the configuration gives it"


def _verdicts(items: pd.DataFrame) -> Iterator[str]:
    """Verdicts of other texts, or to other references."""
    if {"judged", "text", "gold", "correct"} <= set(items):
        told = items[items["judged"].notna() & items["correct"].notna()]
        parts = zip(told["text"], told["gold"], told["correct"], strict=True)
        other = told[told["judged"] != [judged_hash(text, gold, bool(verdict)) for text, gold, verdict in parts]]
        if len(other):
            mend = "restore it, or take `judged` out and score again"
            yield f"items.jsonl: the verdict of {_rows(other)} is not of this text and gold: {mend}"


def _steps(config: RunConfig, windows: pd.DataFrame) -> Iterator[str]:
    """Windows of more diffusion steps than their method has."""
    for name, method in config.methods.items():
        for suite, setting in method.suites.items():
            steps = setting.options.get("steps")
            if isinstance(steps, int) and "step" in windows:
                own = windows[(windows["method"] == name) & (windows["suite"] == suite)]
                if len(other := own[own["step"].astype(float) >= steps]):
                    yield f"windows.jsonl: {_rows(other)} is of a step beyond the {steps} of its method"


def _sums(items: pd.DataFrame, windows: pd.DataFrame) -> Iterator[str]:
    """Items whose windows are missing, or do not sum to what the item says."""
    if {"proposed", "accepted"} <= set(windows):
        windows = windows.assign(rejected=windows["accepted"] < windows["proposed"])
    columns = [name for name in SUMS if name in items and (name in windows or windows.empty)]
    if "proposed" not in columns:
        return
    counted = items[items["proposed"].notna()].set_index(list(KEY))
    sums = pd.DataFrame(0, index=counted.index, columns=columns)
    if len(windows):
        sums = windows.groupby(list(KEY), sort=False)[columns].sum().reindex(counted.index, fill_value=0)
    missing = (sums["proposed"] == 0) & (counted["proposed"] > 0)
    if missing.any():
        yield f"windows.jsonl: {_rows(counted[missing].reset_index())} has drafts, and no window is there"
    for name in columns:
        other = counted[~missing & counted[name].notna() & sums[name].ne(counted[name])]
        if len(other):
            yield f"windows.jsonl: what the windows of {_rows(other.reset_index())} {name} is not what the item says"


def _rows(frame: pd.DataFrame, key: tuple[str, ...] = KEY) -> str:
    """The first rows, by their keys, and how many more there are."""
    named = [" ".join(str(value) for value in row) for row in frame[list(key)].head(SHOWN).to_numpy()]
    more = f" and {len(frame) - SHOWN} more" if len(frame) > SHOWN else ""
    return f"{', '.join(named)}{more}"


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """What differs between two configurations, as dotted paths with both values."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = [*before, *(key for key in after if key not in before)]
        return [
            difference
            for key in keys
            for difference in differences(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
        ]
    there, now = ("all of it" if isinstance(each, dict) else each for each in (before, after))
    return [] if before == after else [f"{path} ({there} there, {now} now)"]
