"""From records to one frame: a row per method and suite, with unformatted numbers.

    run -> checked_items -> measure -> (marks, intervals, means) -> tables, figures, claims, report

Everything here is a pure function of a run as `read_run` returns it, and does not depend on the
order of its lines. Methods and suites may be strings or categoricals.
"""

import math
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
import pandas as pd

from harness.errors import UserError
from harness.records.store import KEY, Run
from harness.stats import Floats, effective_trials

# The method whose seconds and forwards are 1.00x.
REFERENCE = "llada"
# The suite of rows that are means over suites.
MEAN = "mean"
PAIR = ["method", "suite"]
PROBLEM = ["suite", "item"]
SPENT = ["seconds", "forwards"]
BOTH_SECONDS = ["seconds_reference", "seconds"]
COUNTED = ["proposed", "accepted", "rejected"]
UNTIL = ("first_block_seconds", "content_seconds")
COSTS = ("flop", "peak_bytes", "joules")
OPTIONAL = [
    "prompt_tokens",
    "content_tokens",
    "eos_tokens",
    "post_stop_tokens",
    "draft_forwards",
    "token_forwards",
    "cached_tokens",
    *UNTIL,
    "draw_seconds",
    *COSTS,
]
MEASURES = [
    *PAIR,
    "accuracy",
    "scored",
    "items",
    "speedup",
    "forward_speedup",
    "acceptance",
    "committed_per_window",
    "seconds_per_item",
    "shared_items",
]
LENGTH = "length_ratio"
TRIALS = "trials"
BY_SEED = "accuracy_by_seed"
DISTURBED = "disturbed_share"
ENDS_OF_TEXT = ["empty", "without_end"]
# The share of a method's seconds that may be disturbed; beyond it they are no measurement.
MOST_DISTURBED = 0.1
WINDOW_MEASURES = [*PAIR, "acceptance", "alpha", "committed_per_window", "windows"]


def method_labels(run: Run) -> dict[str, str]:
    """The run's methods in its order: key -> label, from run.json."""
    return {name: method.label or name for name, method in run.config.methods.items()}


def suite_titles(run: Run) -> dict[str, str]:
    """The run's suites in its order: key -> title, from run.json."""
    return {name: suite.title or name for name, suite in run.config.suites.items()}


def checkpoint_names(run: Run, method: str) -> str:
    """The names of a method's checkpoints, several if they differ by suite; "-" if the record does
    not say."""
    models = run.config.models.get(run.config.methods[method].role, {})
    names = [PurePath(models[suite]).name for suite in run.config.suites if suite in models]
    return ", ".join(dict.fromkeys(names)) or "-"


def timed(run: Run) -> bool:
    """Whether seconds are for comparison: config.timed of the run that the seconds are from."""
    return (run.speed or run).config.timed


def other_tokenizers(run: Run) -> set[str]:
    """The methods of the role `ar` with another tokenizer than the rest, so that numbers of tokens
    do not compare. It shows in the hashes of their prompts."""
    names = [name for name, method in run.config.methods.items() if method.role == "ar"]
    autoregressive = run.items["method"].isin(names)
    if not autoregressive.any() or "prompt_hash" not in run.items:
        return set()
    rest = run.items[~autoregressive].drop_duplicates(PROBLEM)
    both = run.items[autoregressive].merge(rest, on=PROBLEM, suffixes=("", "_rest"))
    return set(both.loc[both["prompt_hash"] != both["prompt_hash_rest"], "method"])


def measure(run: Run) -> pd.DataFrame:
    """The frame of a run.

    Args:
        run: as read.

    Returns:
        A row per method and suite that has items, in the configuration's order. Columns are
        MEASURES, for tables, and those that marks, intervals and means need. Shared items are those
        that LLaDA has too.

        accuracy: percent of the scored items. speedup, forward_speedup: LLaDA's total / the
        method's, over the shared items. length_ratio: the method's content tokens / LLaDA's, over
        the shared items. acceptance: accepted / proposed drafts. committed_per_window: mean number
        of positions. trials: independent verdicts, fewer than `scored` if a problem has several
        seeds. accuracy_by_seed: a tuple, () with one seed. empty, without_end: shares of responses.
        disturbed: the number of disturbed responses. disturbed_share: their share of the seconds,
        the method's or LLaDA's, whichever is larger.

        NaN if there is nothing to measure; in seconds if the run was not timed; in length_ratio for
        another tokenizer.

    Raises:
        UserError: there are no items, or they are damaged.
    """
    items = checked_items(run)
    frame = by_pair(items).agg(
        items=("item", "size"),
        scored=("verdict", "count"),
        right=("verdict", "sum"),
        seconds_per_item=("seconds", "mean"),
        proposed=("proposed", "sum"),
        accepted=("accepted", "sum"),
        disturbed=("disturbed", "sum"),
        empty=("empty", "mean"),
        without_end=("without_end", "mean"),
    )
    frame["accuracy"] = 100 * frame["right"] / frame["scored"]
    frame["acceptance"] = frame["accepted"] / frame["proposed"]
    frame["acceptance_percent"] = 100 * frame["acceptance"]
    frame = frame.join(_over_reference(items)).join(_windows(run)["committed_per_window"])
    frame["shared_items"] = frame["shared_items"].fillna(0).astype(int)
    other = frame.index.get_level_values("method").isin(other_tokenizers(run))
    frame.loc[other, LENGTH] = math.nan
    _add_seeds(frame, run, items)
    if not timed(run):
        frame[["speedup", "seconds_per_item"]] = math.nan
    return by_name(frame)


def _add_seeds(frame: pd.DataFrame, run: Run, items: pd.DataFrame) -> None:
    """Set the columns TRIALS and BY_SEED of a frame with the index PAIR."""
    frame[TRIALS] = frame["scored"].astype(float)
    by_seed: dict[Any, tuple[float, ...]] = {}
    draws = len(run.config.draws)
    if draws > 1:
        for pair, rows in by_pair(items.dropna(subset="verdict")):
            verdicts = rows["verdict"].to_numpy()
            frame.loc[pair, TRIALS] = effective_trials(verdicts, rows["problem"].to_numpy())
            seeds = rows.groupby("draw")["verdict"]
            # Seeds with other problems would differ by these too.
            if seeds.size().nunique() == 1 and len(seeds) == draws:
                by_seed[pair] = tuple(100 * seeds.mean())
    frame[BY_SEED] = [by_seed.get(pair, ()) for pair in frame.index]


def measure_windows(run: Run) -> pd.DataFrame:
    """The measures of speculative windows.

    Args:
        run: as read.

    Returns:
        A row per method and suite that has windows, in the configuration's order; columns are
        WINDOW_MEASURES. acceptance: accepted / proposed drafts. alpha: accepted / (accepted +
        rejected), the rate among tested drafts. committed_per_window: mean number of positions.
        windows: their number.

    Raises:
        UserError: as `measure`.
    """
    sums = by_pair(checked_items(run))[COUNTED].sum()
    tested = sums["accepted"] + sums["rejected"]
    rates = pd.DataFrame(
        {"acceptance": sums["accepted"] / sums["proposed"], "alpha": sums["accepted"] / tested}
    )
    return by_name(rates.join(_windows(run), how="inner"))[WINDOW_MEASURES]


def checked_items(run: Run) -> pd.DataFrame:
    """The items of a run, checked and in one order.

    Args:
        run: as read.

    Returns:
        A new frame, sorted by method and suite in the configuration's order, then by number.
        method, suite: categoricals. why: text, as recorded. All other columns are floats; OPTIONAL
        are NaN if the record has none. problem: the item's number without its seed. draw: the index
        of its seed among the run's. verdict: 1, 0 or NaN (not scored). tokens: a number that is the
        same for the same tokens, NaN without a hash. empty: 1 if the text is only white space.
        without_end: 1 if neither EOS nor an end of turn was committed.

    Raises:
        UserError: there are no items, or they are damaged.
    """
    items = run.items
    if items.empty:
        raise UserError(
            f"{run.folder} holds no items yet: items.jsonl is empty or missing; run harness/run.py"
            " first"
        )
    columns: dict[str, Any] = {}
    for name in ("item", *SPENT, *COUNTED):
        values = floats_of(items, name)
        missing = np.flatnonzero(np.isnan(values))
        # An item that the timed run does not have has no seconds.
        if len(missing) and (name != "seconds" or run.speed is None):
            first = " ".join(str(items[key].iloc[missing[0]]) for key in KEY)
            raise UserError(
                f"{run.folder}/items.jsonl: {first} has no {name}; the record is damaged, remove"
                " that line"
            )
        columns[name] = values
    columns |= {name: floats_of(items, name) for name in OPTIONAL}
    columns |= draws_of(run, columns["item"])
    columns |= categoricals(items, run)
    columns["verdict"] = floats_of(items, "correct")
    columns["disturbed"] = floats_of(items, "disturbed")
    texts = items.reindex(columns=["tokens_hash", "text", "why"]).astype("string")
    # factorize: -1 for a missing hash, which must not be equal to another one.
    tokens = pd.factorize(texts["tokens_hash"])[0]
    columns["tokens"] = np.where(tokens < 0, math.nan, tokens)
    columns["why"] = texts["why"]
    letters = texts["text"].str.strip().str.len().to_numpy(float, na_value=math.nan)
    columns["empty"] = 1 - np.minimum(letters, 1)
    after_content = columns["eos_tokens"] + columns["post_stop_tokens"]
    columns["without_end"] = 1 - np.minimum(after_content, 1)
    frame = pd.DataFrame(columns).sort_values([*PAIR, "item"], kind="stable", ignore_index=True)
    return _without_disturbed(frame)


def _without_disturbed(items: pd.DataFrame) -> pd.DataFrame:
    """Add the disturbed share of the seconds of each method and suite. Where it is larger than
    MOST_DISTURBED, all seconds become NaN."""
    items[DISTURBED] = items["seconds"].where(items["disturbed"] == 1, 0.0)
    sums = by_pair(items)[[DISTURBED, "seconds"]].transform("sum")
    items[DISTURBED] = (sums[DISTURBED] / sums["seconds"]).fillna(0.0)
    items.loc[items[DISTURBED] > MOST_DISTURBED, ["seconds", *UNTIL, "draw_seconds", "joules"]] = (
        math.nan
    )
    return items


def suites_with(frame: pd.DataFrame, suites: Sequence[str], column: str) -> list[str]:
    """The suites that the mean of a number is over: without those where no method has the number,
    such as one that is not scored.

    Args:
        frame: rows by method and suite.
        suites: the suites that the mean should be over; a suite without any rows stays.
        column: the number's.
    """
    # A suite without rows stays, so that its absence makes the mean NaN.
    known = frame.groupby("suite")[column].count()
    return [suite for suite in suites if known.get(suite, 1) > 0]


def over_suites(frame: pd.DataFrame, suites: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    """Plain means over suites, each suite with the same weight.

    Args:
        frame: rows by method and suite.
        suites: the suites that the means are over, see `suites_with`.
        columns: the numbers'.

    Returns:
        A row per method, which is the index, in the frame's order; NaN if a suite is missing.
    """
    methods = frame["method"].drop_duplicates()
    means = {}
    for column in columns:
        table = frame.pivot(index="suite", columns="method", values=column)
        rows = table.reindex(suites_with(frame, suites, column))[methods].astype(float)
        means[column] = rows.mean(skipna=False)
    return pd.DataFrame(means).rename_axis("method")


def shared_with_reference(items: pd.DataFrame, reference: str = REFERENCE) -> pd.DataFrame:
    """The items that the reference has too, with its numbers as <name>_reference.

    Args:
        items: of `checked_items`.
        reference: the method's key.
    """
    names = [*SPENT, "content_tokens", "verdict", "tokens", DISTURBED]
    baseline = items.loc[items["method"] == reference, [*PROBLEM, *names]]
    return items.merge(baseline, on=PROBLEM, suffixes=("", "_reference"))


def categoricals(frame: pd.DataFrame, run: Run) -> dict[str, pd.Categorical]:
    """A frame's columns method and suite as categoricals, so that groups come in the
    configuration's order."""
    known = {"method": method_labels(run), "suite": suite_titles(run)}
    return {name: pd.Categorical(frame[name], list(names)) for name, names in known.items()}


def by_pair(frame: pd.DataFrame) -> pd.api.typing.DataFrameGroupBy:
    """A frame grouped by method and suite, in the order of the categories."""
    return frame.groupby(PAIR, observed=True)


def by_name(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame with the index PAIR, with method and suite as its first columns, strings."""
    return frame.reset_index().astype(dict.fromkeys(PAIR, str))


def _over_reference(items: pd.DataFrame) -> pd.DataFrame:
    """shared_items, speedup, forward_speedup, length_ratio and disturbed_share by PAIR, for those
    that share items with LLaDA."""
    shared = shared_with_reference(items)
    # Both or none: totals must be over the same items.
    shared.loc[shared[BOTH_SECONDS].isna().any(axis=1), BOTH_SECONDS] = math.nan
    groups = by_pair(shared)
    sums = groups[[*SPENT, *(f"{name}_reference" for name in SPENT)]].sum()
    lengths = groups[["content_tokens", "content_tokens_reference"]].mean()
    disturbed = groups[[DISTURBED, f"{DISTURBED}_reference"]].max()
    return pd.DataFrame(
        {
            "shared_items": groups.size(),
            "speedup": sums["seconds_reference"] / sums["seconds"],
            "forward_speedup": sums["forwards_reference"] / sums["forwards"].replace(0, math.nan),
            LENGTH: (
                lengths["content_tokens"] / lengths["content_tokens_reference"].replace(0, math.nan)
            ),
            DISTURBED: disturbed.max(axis=1),
        }
    )


def draws_of(run: Run, item: Floats) -> dict[str, Floats]:
    """Split the numbers of items into `problem` and `draw`, the index of the seed.

    Args:
        run: as read.
        item: (n,), numbers of the run's items.
    """
    draws = len(run.config.draws)
    if draws == 1:
        return {"problem": item, "draw": np.zeros(len(item))}
    counts = {suite: run.meta.files[suite]["items"] // draws for suite in run.config.suites}
    draw, problem = np.divmod(item, run.items["suite"].astype(str).map(counts).to_numpy(float))
    return {"problem": problem, "draw": draw}


def _windows(run: Run) -> pd.DataFrame:
    """committed_per_window and windows by PAIR."""
    # Counts are integers, so the sums of floats are exact whatever the order of the lines.
    windows = run.windows.reindex(columns=[*KEY, "committed"])
    frame = pd.DataFrame(categoricals(windows, run))
    frame["committed"] = floats_of(windows, "committed")
    groups = by_pair(frame)["committed"]
    return pd.DataFrame({"committed_per_window": groups.mean(), "windows": groups.size()})


def floats_of(frame: pd.DataFrame, name: str) -> Floats:
    """A column as floats; NaN for a missing column, and for values that are no numbers."""
    if name not in frame:
        return np.full(len(frame), math.nan)
    return pd.to_numeric(frame[name], errors="coerce").to_numpy(float, na_value=math.nan)
