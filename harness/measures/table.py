"""Records become one frame: a row per method and suite, unformatted numbers.

    run -> checked_items -> measure -> (marks, intervals, means) -> tables, figures, claims, report

Everything here is a pure function of a run as `read_run` gives it, and does not depend on the order
of its lines. Methods and suites may be strings or categoricals.
"""

import math
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.errors import UserError
from harness.records.store import KEY, Run
from harness.stats import effective_trials

REFERENCE = "llada"  # the method whose seconds and forwards are 1.00x
MEAN = "mean"  # the suite of rows that are means over suites
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
MOST_DISTURBED = 0.1  # of a method's seconds, beyond which they are no measurement
WINDOW_MEASURES = [*PAIR, "acceptance", "alpha", "committed_per_window", "windows"]


def method_labels(run: Run) -> dict[str, str]:
    """The run's methods in its order: key -> label, from run.json."""
    return {name: method.label or name for name, method in run.config.methods.items()}


def suite_titles(run: Run) -> dict[str, str]:
    """The run's suites in its order: key -> title, from run.json."""
    return {name: suite.title or name for name, suite in run.config.suites.items()}


def checkpoint_names(run: Run, method: str) -> str:
    """The checkpoints that decode by a method, by name; several where they differ by suite; "-" if
    it is not said."""
    models = run.config.models.get(run.config.methods[method].role, {})
    used = [PurePath(models[suite]).name for suite in run.config.suites if suite in models]
    return ", ".join(dict.fromkeys(used)) or "-"


def timed(run: Run) -> bool:
    """Whether there are seconds to be compared: config.timed of run.json, or of the run that its
    seconds are of."""
    return (run.speed or run).config.timed


def other_tokenizers(run: Run) -> set[str]:
    """The methods of the role `ar` whose prompts have other tokens than the rest has, so that
    tokens do not compare."""
    names = [name for name, method in run.config.methods.items() if method.role == "ar"]
    autoregressive = run.items["method"].isin(names)
    if not autoregressive.any() or "prompt_hash" not in run.items:
        return set()
    rest = run.items[~autoregressive].drop_duplicates(PROBLEM)
    both = run.items[autoregressive].merge(rest, on=PROBLEM, suffixes=("", "_rest"))
    return set(both.loc[both["prompt_hash"] != both["prompt_hash_rest"], "method"])


def measure(run: Run) -> pd.DataFrame:
    """The frame of a run: a row per method and suite that has items, in the configuration's order.

    Columns are MEASURES, for tables, and what marks, intervals and means are made of.
    accuracy: percent of the scored items. speedup, forward_speedup: LLaDA's total / the method's,
    and length_ratio: the method's content tokens / LLaDA's, over the shared items, those that LLaDA
    has too. acceptance: accepted / proposed drafts. committed_per_window: mean of positions.
    trials: independent verdicts, fewer than `scored` where a problem has several seeds;
    accuracy_by_seed: () where there is one. empty, without_end: shares of responses. disturbed:
    responses that others disturbed; disturbed_share: their part of the seconds, the method's or
    LLaDA's, whichever is larger. NaN where there is nothing to measure, in seconds where the run
    was not timed, and in length_ratio for another tokenizer.

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
    """Set TRIALS and BY_SEED of a frame by PAIR."""
    frame[TRIALS] = frame["scored"].astype(float)
    by_seed: dict[Any, tuple[float, ...]] = {}
    draws = len(run.config.draws)
    if draws > 1:
        for pair, rows in by_pair(items.dropna(subset="verdict")):
            verdicts = rows["verdict"].to_numpy()
            frame.loc[pair, TRIALS] = effective_trials(verdicts, rows["problem"].to_numpy())
            seeds = rows.groupby("draw")["verdict"]
            # a spread needs all problems of all seeds
            if seeds.size().nunique() == 1 and len(seeds) == draws:
                by_seed[pair] = tuple(100 * seeds.mean())
    frame[BY_SEED] = [by_seed.get(pair, ()) for pair in frame.index]


def measure_windows(run: Run) -> pd.DataFrame:
    """One row per method and suite that has speculative windows, in the configuration's order;
    WINDOW_MEASURES.

    acceptance: accepted / proposed drafts. alpha: accepted / (accepted + rejected), the rate among
    tested drafts. committed_per_window: mean of positions. windows: how many. Raises UserError as
    `measure` does.
    """
    sums = by_pair(checked_items(run))[COUNTED].sum()
    tested = sums["accepted"] + sums["rejected"]
    rates = pd.DataFrame(
        {"acceptance": sums["accepted"] / sums["proposed"], "alpha": sums["accepted"] / tested}
    )
    return by_name(rates.join(_windows(run), how="inner"))[WINDOW_MEASURES]


def checked_items(run: Run) -> pd.DataFrame:
    """The items by method and suite in the configuration's order, then by number; a fresh frame.

    method, suite: categoricals. Others are floats, OPTIONAL NaN where the record has none. draw:
    the place of an item's seed among the run's. verdict: 1, 0 or NaN (not scored). tokens: equal
    where the response's tokens are, NaN without a hash of them. empty, without_end: 1 where the
    text is white space at most, and where neither EOS nor an end of turn was committed, else 0.
    why: as recorded. Raises UserError if there are no items, or they are damaged.
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
        least = math.ulp(0.0) if name == "seconds" else 0.0  # a random baseline makes no forwards
        elsewhere = np.isnan(values) & (name == "seconds" and run.speed is not None)
        wrong = np.flatnonzero(~((values >= least) & (values < math.inf) | elsewhere))
        if len(wrong):
            where = " ".join(str(items[key].iloc[wrong[0]]) for key in KEY)
            raise UserError(
                f"{run.folder}/items.jsonl: {where} has no valid {name}; the record is damaged,"
                " remove that line"
            )
        columns[name] = values
    columns |= {name: floats_of(items, name) for name in OPTIONAL}
    columns |= draws_of(run, columns["item"])
    columns |= categoricals(items, run)
    columns["verdict"] = floats_of(items, "correct")
    columns["disturbed"] = floats_of(items, "disturbed")
    texts = items.reindex(columns=["tokens_hash", "text", "why"]).astype("string")
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
    """The items with the part of their method's seconds on the suite that was disturbed; beyond
    MOST_DISTURBED seconds are NaN."""
    items[DISTURBED] = items["seconds"].where(items["disturbed"] == 1, 0.0)
    sums = by_pair(items)[[DISTURBED, "seconds"]].transform("sum")
    items[DISTURBED] = (sums[DISTURBED] / sums["seconds"]).fillna(0.0)
    items.loc[items[DISTURBED] > MOST_DISTURBED, ["seconds", *UNTIL, "draw_seconds", "joules"]] = (
        math.nan
    )
    return items


def suites_with(frame: pd.DataFrame, suites: Sequence[str], column: str) -> list[str]:
    """The suites that a mean of a number is over: all but those where no method has it, as in one
    that is not scored.

    Args:
        frame: rows by method and suite.
        suites: what the mean should be over; one that has no rows at all stays.
        column: the number.
    """
    known = frame.groupby("suite")[column].count()
    return [suite for suite in suites if known.get(suite, 1) > 0]


def over_suites(frame: pd.DataFrame, suites: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    """Plain means of numbers over `suites_with` them, each suite with the same weight.

    Args:
        frame: rows by method and suite.
        suites: what the means are over.
        columns: the numbers.

    Returns:
        A row per method, in the frame's order, its index; NaN where one of the suites is missing.
    """
    methods = frame["method"].drop_duplicates()
    means = {}
    for column in columns:
        table = frame.pivot(index="suite", columns="method", values=column)
        rows = table.reindex(suites_with(frame, suites, column))[methods].astype(float)
        means[column] = rows.mean(skipna=False)
    return pd.DataFrame(means).rename_axis("method")


def shared_with_reference(items: pd.DataFrame, reference: str = REFERENCE) -> pd.DataFrame:
    """Those of `checked_items` that the reference has too, in their order, with its numbers as
    <name>_reference."""
    names = [*SPENT, "content_tokens", "verdict", "tokens", DISTURBED]
    of_reference = items.loc[items["method"] == reference, [*PROBLEM, *names]]
    return items.merge(of_reference, on=PROBLEM, suffixes=("", "_reference"))


def categoricals(frame: pd.DataFrame, run: Run) -> dict[str, pd.Categorical]:
    """A frame's methods and suites, in whose order groups are then the configuration's."""
    known = {"method": method_labels(run), "suite": suite_titles(run)}
    return {name: pd.Categorical(frame[name], list(names)) for name, names in known.items()}


def by_pair(frame: pd.DataFrame) -> pd.api.typing.DataFrameGroupBy:
    """A frame's groups by method and suite, in the order of its categories."""
    return frame.groupby(PAIR, observed=True)


def by_name(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame of groups by method and suite with these, strings, as its first columns."""
    return frame.reset_index().astype(dict.fromkeys(PAIR, str))


def _over_reference(items: pd.DataFrame) -> pd.DataFrame:
    """shared_items, speedup, forward_speedup, length_ratio and disturbed_share by PAIR; absent
    without items shared with LLaDA."""
    shared = shared_with_reference(items)
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


def draws_of(run: Run, item: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
    """For each number of an item (n,) its problem, and the place of its seed among the run's."""
    draws = len(run.config.draws)
    if draws == 1:
        return {"problem": item, "draw": np.zeros(len(item))}
    counts = {suite: run.meta.files[suite]["items"] // draws for suite in run.config.suites}
    draw, problem = np.divmod(item, run.items["suite"].astype(str).map(counts).to_numpy(float))
    return {"problem": problem, "draw": draw}


def _windows(run: Run) -> pd.DataFrame:
    """committed_per_window and windows by PAIR. Counts are integers: sums do not depend on the
    order of the lines."""
    windows = run.windows.reindex(columns=[*KEY, "committed"])
    frame = pd.DataFrame(categoricals(windows, run))
    frame["committed"] = floats_of(windows, "committed")
    groups = by_pair(frame)["committed"]
    return pd.DataFrame({"committed_per_window": groups.mean(), "windows": groups.size()})


def floats_of(frame: pd.DataFrame, name: str) -> npt.NDArray[np.float64]:
    """A column as floats; NaN where it is not there or no number."""
    if name not in frame:
        return np.full(len(frame), math.nan)
    return pd.to_numeric(frame[name], errors="coerce").to_numpy(float, na_value=math.nan)
