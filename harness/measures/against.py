"""Methods beside one of them, problem by problem; and a page's claims, which are such comparisons
with one correction.

A comparison has one of four words, by its interval after Holm over the family of comparisons that
are made together: `ahead` if the whole interval is above 0 and the exact test agrees, `behind` if
it is below, `level` if it lies within MARGIN points of 0, and otherwise `not shown`. Over several
suites it is of their mean, each with the same weight.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pandas as pd
from msgspec import Meta

from harness.errors import UserError, explained
from harness.measures.intervals import Paired, paired
from harness.measures.seconds import timed_sessions
from harness.measures.table import method_labels, suite_titles
from harness.records.store import Run
from harness.stats import (
    LEVEL,
    Flips,
    holm,
    holm_levels,
    mean_difference,
    mean_difference_enough,
    mean_difference_interval,
    mean_difference_p_value,
    speedup_interval,
)
from model_wrappers.options import meant

ALL = "all"  # the mean of all suites
MARGIN = 2.0  # points
NOT_SHOWN = "not shown"
AGAINST = [
    *(
        "method",
        "suite",
        "items",
        "judged",
        "lost",
        "gained",
        "points",
        "points_low",
        "points_high",
    ),
    *("holm_low", "holm_high", "word", "needed"),
    *("speed", "speed_low", "speed_high", "same"),
]


def against(run: Run, reference: str) -> pd.DataFrame:
    """A row per method other than the reference and suite, and one of all suites (ALL); columns are
    AGAINST.

    items, lost, gained, same: of `Paired`; judged: its problems. points: 100 * (gained - lost) /
    all judged items, with its 95% interval (`stats.mean_difference_interval`). holm_low, holm_high:
    its interval after Holm over all rows; word: what it shows; needed: where that is nothing, how
    many problems would show a difference like this. speed: the reference's total seconds / the
    method's, with its bootstrap interval. Points and speed of ALL are plain means over the suites.
    NaN where there is nothing to compare. Raises UserError if the run has no such method with
    items, or no other shares any with it.
    """
    methods = list(method_labels(run))
    suites = list(suite_titles(run))
    pairs = paired(run, reference) if reference in methods else {}
    rows = []
    for method in methods:
        own = {suite: pairs[method, suite] for suite in suites if (method, suite) in pairs}
        if method == reference or not own:
            continue
        rows += [_row(method, suite, [pair]) for suite, pair in own.items()]
        if len(suites) > 1:
            rows.append(_row(method, ALL, list(own.values()), complete=len(own) == len(suites)))
    if not rows:
        wrong = "no other method shares problems with it"
        if reference not in methods:
            wrong = f"the run has no such method{meant(reference, methods)}"
        elif not any(method == reference for method, _ in pairs):
            wrong = "there are no items of it yet"
        raise UserError(f"--against {reference}: {wrong}")
    return with_words(pd.DataFrame(rows))[AGAINST]


def outside_methods(run: Run) -> list[str]:
    """The methods whose decoders come from outside the project."""
    registered = [plugin.registered.get("decoders", []) for plugin in run.meta.plugins]
    decoders = {name for names in registered for name in names}
    return [name for name, method in run.config.methods.items() if method.method in decoders]


def with_words(compared: pd.DataFrame) -> pd.DataFrame:
    """Comparisons that are made together, with holm_low, holm_high, word, and needed as `against`
    has it.

    compared: columns judged, and flips, of each row the `stats.Flips` of its suites.
    """
    rows: list[list[Flips]] = compared["flips"].tolist()
    p_values = [mean_difference_p_value(own) if own else math.nan for own in rows]
    levels = holm_levels(p_values)
    nothing = (math.nan, math.nan)
    ends = [
        mean_difference_interval(own, level) if own else nothing
        for own, level in zip(rows, levels, strict=True)
    ]
    found = 100 * pd.DataFrame(ends, columns=["holm_low", "holm_high"], index=compared.index)
    words = [
        word(low, high, rejected=adjusted < 1 - LEVEL)
        for (low, high), adjusted in zip(
            found.itertuples(index=False, name=None), holm(p_values), strict=True
        )
    ]
    needed = [
        mean_difference_enough(own, level, judged) if said == NOT_SHOWN else math.nan
        for own, level, judged, said in zip(rows, levels, compared["judged"], words, strict=True)
    ]
    return compared.assign(
        holm_low=found["holm_low"], holm_high=found["holm_high"], word=words, needed=needed
    )


def word(low: float, high: float, margin: float = MARGIN, rejected: bool = True) -> str:
    """What an interval of a difference shows, in one word; "" for none. rejected: whether a test
    agrees with it."""
    if math.isnan(low):
        return ""
    if (low > 0 or high < 0) and rejected:
        return "ahead" if low > 0 else "behind"
    return "level" if -margin < low and high < margin else NOT_SHOWN


def flips_of(pairs: Sequence[Paired]) -> list[Flips]:
    """The counts of pairs that were judged, one per suite; of several seeds as many as they are
    worth."""
    return [
        (pair.worth * pair.lost, pair.worth * pair.gained, pair.worth * pair.judged)
        for pair in pairs
        if pair.judged
    ]


def _row(method: str, suite: str, pairs: Sequence[Paired], complete: bool = True) -> dict[str, Any]:
    """The row of a method over `pairs`, one per suite; it has a speed if they are `complete` and
    were timed."""
    judged, lost, gained = (
        sum(getattr(pair, name) for pair in pairs) for name in ("problems", "lost", "gained")
    )
    flips = flips_of(pairs)
    points = mean_difference_interval(flips) if flips else (math.nan, math.nan)
    speed, *speeds = _speed(pairs, LEVEL) if complete else (math.nan, math.nan, math.nan)
    return {
        "method": method,
        "suite": suite,
        "items": sum(pair.items for pair in pairs),
        "judged": judged,
        "lost": lost,
        "gained": gained,
        "flips": flips,
        "points": 100 * mean_difference(flips) if flips else math.nan,
        "points_low": 100 * points[0],
        "points_high": 100 * points[1],
        "speed": speed,
        "speed_low": speeds[0],
        "speed_high": speeds[1],
        "same": sum(pair.same for pair in pairs),
    }


def _speed(pairs: Sequence[Paired], level: float) -> tuple[float, float, float]:
    """The mean over suites of the reference's seconds / the method's, and its interval; NaN where
    any are missing."""
    totals = [pair.seconds.sum(0) for pair in pairs]
    if not all(len(pair.seconds) for pair in pairs) or np.isnan(totals).any():
        return math.nan, math.nan, math.nan
    low, high = speedup_interval([pair.seconds for pair in pairs], level)
    return sum(above / below for above, below in totals) / len(totals), low, high


SAME_SPEED = 0.05  # a ratio whose whole interval is nearer to 1 than this is level
CLAIMS = [
    *("claim", "record", "method", "reference", "suites", "measure"),
    *("items", "value", "low", "high", "word", "goal", "others", "sessions"),
]


class Claim(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A comparison that a page makes, in words; record: folder of the run, below the file's.

    suites: some of the run's, [] for all. measure: points of accuracy, or speed (times the
    reference's), each a mean over the suites. at_least: a goal, which holds if the interval lies
    above it, in points or as a ratio; it is written down before the run.
    """

    claim: Annotated[str, Meta(min_length=1)]
    record: str
    method: str
    reference: str
    suites: list[str] = []
    measure: Literal["points", "speed"] = "points"
    at_least: float | None = None


class Claims(msgspec.Struct, forbid_unknown_fields=True):
    """A file of claims."""

    claim: Annotated[list[Claim], Meta(min_length=1)]


def read_claims(path: Path) -> list[Claim]:
    """The claims of a TOML file. Raises UserError if it cannot be read, or has something else."""
    keys = f"the keys of a [[claim]] are {', '.join(Claim.__struct_fields__)}"
    with explained(
        f"{path} is no file of claims", OSError, ValueError, msgspec.ValidationError, instead=keys
    ):
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Claims).claim


def records_of(claims: list[Claim], folder: Path) -> dict[str, list[Run]]:
    """The records of claims, below `folder`, with their timed sessions. Raises UserError as
    `timed_sessions` does."""
    return {
        record: timed_sessions(folder / record)
        for record in dict.fromkeys(claim.record for claim in claims)
    }


def compare(claims: list[Claim], runs: Mapping[str, list[Run]]) -> pd.DataFrame:
    """A row per claim, columns CLAIMS; runs: of `records_of`.

    value: points, or speed as of `against`, the mean of the record's timed sessions. low, high: its
    interval after Holm over all claims of points, or at the level of Bonferroni over all claims of
    speed; of several sessions one that covers each session's. goal: whether the interval lies above
    at_least, "" without one. others: how many other settings of the method's decoder the record
    has, whose best this may be. sessions: the speed in each of several, by threads. Raises
    UserError for a record, method or suite that is not there, and for a speed of a run that was not
    timed.
    """
    level = 1 - (1 - LEVEL) / max(1, sum(claim.measure == "speed" for claim in claims))
    rows = [_claim_row(claim, runs[claim.record], level) for claim in claims]
    frame = pd.DataFrame(rows)
    points = frame["measure"] == "points"
    if points.any():
        found = with_words(frame[points])
        frame.loc[points, ["low", "high", "word"]] = found[
            ["holm_low", "holm_high", "word"]
        ].to_numpy()
    goals = [claim.at_least for claim in claims]
    frame["goal"] = [_held(goal, low) for goal, low in zip(goals, frame["low"], strict=True)]
    return frame[CLAIMS]


def _held(goal: float | None, low: float) -> str:
    """Whether a goal is shown by the lower end of an interval; "" without one."""
    if goal is None:
        return ""
    return "holds" if low > goal else NOT_SHOWN


def _pairs(claim: Claim, run: Run) -> list[Paired]:
    """The method beside the reference on the claim's suites."""
    where = f"claim {claim.claim!r}: {run.folder}"
    for name in (claim.method, claim.reference):
        if name not in method_labels(run):
            raise UserError(f"{where} has no method {name}; it has {', '.join(method_labels(run))}")
    suites = claim.suites or list(suite_titles(run))
    found = paired(run, claim.reference)
    missing = [suite for suite in suites if (claim.method, suite) not in found]
    if missing:
        raise UserError(f"{where} has no problems of both methods on {', '.join(missing)}")
    unjudged = [
        suite
        for suite in suites
        if claim.measure == "points" and not found[claim.method, suite].judged
    ]
    if unjudged:
        raise UserError(f"{where} has no verdicts on {', '.join(unjudged)}; score it first")
    return [found[claim.method, suite] for suite in suites]


def _claim_row(claim: Claim, runs: list[Run], level: float) -> dict[str, Any]:
    """A claim's row, with the counts that `with_words` reads; points have their interval from
    there."""
    run = runs[0]
    speeds = pd.DataFrame()
    labels = method_labels(run)
    titles = suite_titles(run)
    methods = run.config.methods
    pairs = _pairs(claim, run)
    flips = flips_of(pairs)
    value = 100 * mean_difference(flips) if flips else math.nan
    if claim.measure == "speed":
        speeds = pd.DataFrame([_session(claim, each, level) for each in runs])
        value = speeds["value"].mean()
    ends = (speeds["low"].min(), speeds["high"].max()) if len(speeds) else (math.nan, math.nan)
    shown = []
    if len(speeds) > 1:
        by_threads = speeds.groupby("threads")["value"].agg(list).to_dict()
        shown = [
            f"{', '.join(f'{each:.2f}' for each in own)} on {count}"
            for count, own in by_threads.items()
        ]
    judged = sum(pair.problems for pair in pairs)
    return {
        "claim": claim.claim,
        "record": claim.record,
        "method": labels[claim.method],
        "reference": labels[claim.reference],
        "suites": ", ".join(titles[suite] for suite in claim.suites) or "all",
        "measure": claim.measure,
        "items": judged if claim.measure == "points" else sum(len(pair.seconds) for pair in pairs),
        **{
            "value": value,
            "low": ends[0],
            "high": ends[1],
            "word": word(ends[0] - 1, ends[1] - 1, SAME_SPEED),
        },
        "others": sum(each.method == methods[claim.method].method for each in methods.values()) - 1,
        "sessions": "; ".join(shown),
        **{"judged": judged, "flips": flips},
    }


def _session(claim: Claim, run: Run, level: float) -> dict[str, Any]:
    """The speed of a claim in one timed session, its interval at this level, and the session's
    threads."""
    value, low, high = _speed(_pairs(claim, run), level)
    if math.isnan(value):
        raise UserError(f"claim {claim.claim!r}: {run.folder} was not timed")
    return {
        "value": value,
        "low": low,
        "high": high,
        "threads": (run.speed or run).meta.environment.get("threads"),
    }
