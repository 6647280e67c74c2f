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
import pandas as pd
from msgspec import Meta

from harness.errors import UserError, explained
from harness.measures.intervals import NOTHING, Paired, paired, speed_of
from harness.measures.marks import union, with_marks
from harness.measures.seconds import timed_sessions
from harness.measures.table import PAIR, measure, method_labels, suite_titles
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
)
from model_wrappers.options import meant

ALL = "all"  # the mean of all suites
MARGIN = 2.0  # points
NOT_SHOWN = "not shown"


def against(run: Run, reference: str) -> pd.DataFrame:
    """A row per method other than the reference and suite, and one of all suites (ALL).

    items, lost, gained, same: of `Paired`; judged: its problems. points: 100 * (gained - lost) /
    all judged items, with its 95% interval (`stats.mean_difference_interval`). holm_low, holm_high:
    its interval after Holm over all rows; word: what it shows; needed: where that is nothing, how
    many problems would show a difference like this. speed: the reference's total seconds / the
    method's, with its bootstrap interval. Points and speed of ALL are plain means over the suites.

    Args:
        run: as read.
        reference: the method that all others are compared with.

    Returns:
        The frame; NaN where there is nothing to compare.

    Raises:
        UserError: the run has no such method with items, or no other shares any with it.
    """
    methods = list(method_labels(run))
    suites = list(suite_titles(run))
    if reference not in methods:
        raise UserError(
            f"--against {reference}: the run has no such method{meant(reference, methods)}"
        )
    pairs = paired(run, reference)
    rows = []
    for method in methods:
        of_method = {suite: pairs[method, suite] for suite in suites if (method, suite) in pairs}
        if method == reference or not of_method:
            continue
        rows += [_row(method, suite, [pair]) for suite, pair in of_method.items()]
        if len(suites) > 1:
            whole = len(of_method) == len(suites)
            rows.append(_row(method, ALL, list(of_method.values()), whole))
    if not rows:
        wrong = "no other method shares problems with it"
        if not any(method == reference for method, _ in pairs):
            wrong = "there are no items of it yet"
        raise UserError(f"--against {reference}: {wrong}")
    return with_words(pd.DataFrame(rows)).drop(columns="flips")


def outside_methods(run: Run) -> list[str]:
    """The methods whose decoders come from outside the project."""
    registered = [plugin.registered.get("decoders", []) for plugin in run.meta.plugins]
    decoders = {name for names in registered for name in names}
    return [name for name, method in run.config.methods.items() if method.method in decoders]


def marks_against(run: Run, reference: str) -> dict[str, dict[Any, str]]:
    """The letters of MARKS on differences: those of the method's number and of the reference's.

    Args:
        run: as read.
        reference: the method that others are compared with.

    Returns:
        `points` and `speed` -> (method, suite) -> letters.
    """
    frame = with_marks(measure(run), run, reference).set_index(PAIR)
    marks = {}
    for name, column in (("points", "accuracy_marks"), ("speed", "speed_marks")):
        # who has fewer items than others says nothing of those that two methods share
        letters: dict[Any, str] = frame[column].str.replace("i", "").to_dict()
        marks[name] = {
            pair: union(text, letters.get((reference, pair[1]), ""))
            for pair, text in letters.items()
        }
    return marks


def with_words(compared: pd.DataFrame) -> pd.DataFrame:
    """Comparisons that are made together, with holm_low, holm_high, word, and needed as `against`
    has it.

    Args:
        compared: columns judged, and flips, of each row the `stats.Flips` of its suites.
    """
    flips: list[list[Flips]] = compared["flips"].tolist()
    p_values = [mean_difference_p_value(suites) if suites else math.nan for suites in flips]
    adjusted = holm(p_values)
    rows = []
    for number, level in enumerate(holm_levels(p_values)):
        low, high = mean_difference_interval(flips[number], level) if flips[number] else NOTHING
        shown = word(100 * low, 100 * high, rejected=adjusted[number] < 1 - LEVEL)
        needed = math.nan
        if shown == NOT_SHOWN:
            needed = mean_difference_enough(flips[number], level, compared["judged"].iloc[number])
        rows.append([100 * low, 100 * high, shown, needed])
    names = ["holm_low", "holm_high", "word", "needed"]
    words = pd.DataFrame(rows, columns=names, index=compared.index)
    return compared.assign(**{name: words[name] for name in names})


def word(low: float, high: float, margin: float = MARGIN, rejected: bool = True) -> str:
    """What an interval of a difference shows, in one word.

    Args:
        low, high: its ends.
        margin: within which both are level.
        rejected: whether a test agrees with an interval without 0.

    Returns:
        The word; "" for no interval.
    """
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


def _row(method: str, suite: str, pairs: Sequence[Paired], whole: bool = True) -> dict[str, Any]:
    """The row of a method over `pairs`, one per suite; it has a speed if they are the whole run's
    and were timed."""
    flips = flips_of(pairs)
    points = mean_difference(flips) if flips else math.nan
    low, high = mean_difference_interval(flips) if flips else NOTHING
    speed = speed_of(pairs) if whole else (math.nan, *NOTHING)
    return {
        "method": method,
        "suite": suite,
        "items": sum(pair.items for pair in pairs),
        "judged": sum(pair.problems for pair in pairs),
        "lost": sum(pair.lost for pair in pairs),
        "gained": sum(pair.gained for pair in pairs),
        "flips": flips,
        "points": 100 * points,
        "points_low": 100 * low,
        "points_high": 100 * high,
        **dict(zip(("speed", "speed_low", "speed_high"), speed, strict=True)),
        "same": sum(pair.same for pair in pairs),
    }


SAME_SPEED = 0.05  # a ratio whose whole interval is nearer to 1 than this is level


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
    records = dict.fromkeys(claim.record for claim in claims)
    return {record: timed_sessions(folder / record) for record in records}


def compare(claims: list[Claim], runs: Mapping[str, list[Run]]) -> pd.DataFrame:
    """A row per claim.

    value: points, or speed as of `against`, the mean of the record's timed sessions. low, high: its
    interval after Holm over all claims of points, or at the level of Bonferroni over all claims of
    speed; of several sessions one that covers each session's. goal: whether the interval lies above
    at_least, "" without one. others: how many other settings of the method's decoder the record
    has, whose best this may be. sessions: the speed in each of several, by threads. marks: letters
    of MARKS on what is compared.

    Args:
        claims: of `read_claims`.
        runs: of `records_of`.

    Returns:
        The frame, for the CSV all but marks.

    Raises:
        UserError: a record, method or suite is not there, or a speed is of a run that was not
            timed.
    """
    level = 1 - (1 - LEVEL) / max(1, sum(claim.measure == "speed" for claim in claims))
    frame = pd.DataFrame([_claim_row(claim, runs[claim.record], level) for claim in claims])
    compared = dict.fromkeys((claim.record, claim.reference) for claim in claims)
    marks = {pair: marks_against(runs[pair[0]][0], pair[1]) for pair in compared}
    texts = []
    for claim in claims:
        by_pair = marks[claim.record, claim.reference][claim.measure]
        suites = _suites(claim, runs[claim.record][0])
        texts.append(union(*(by_pair[claim.method, suite] for suite in suites)))
    points = frame["measure"] == "points"
    if points.any():
        words = with_words(frame[points])[["holm_low", "holm_high", "word"]]
        frame.loc[points, ["low", "high", "word"]] = words.to_numpy()
    goals = []
    for claim, low in zip(claims, frame["low"], strict=True):
        shown = "holds" if claim.at_least is not None and low > claim.at_least else NOT_SHOWN
        goals.append("" if claim.at_least is None else shown)
    return frame.assign(goal=goals, marks=texts).drop(columns=["judged", "flips"])


def _suites(claim: Claim, run: Run) -> list[str]:
    return claim.suites or list(suite_titles(run))


def _pairs(claim: Claim, run: Run) -> list[Paired]:
    """The method beside the reference on the claim's suites."""
    where = f"claim {claim.claim!r}: {run.folder}"
    for name in (claim.method, claim.reference):
        if name not in method_labels(run):
            raise UserError(f"{where} has no method {name}; it has {', '.join(method_labels(run))}")
    pairs = paired(run, claim.reference)
    suites = _suites(claim, run)
    missing = [suite for suite in suites if (claim.method, suite) not in pairs]
    if missing:
        raise UserError(f"{where} has no problems of both methods on {', '.join(missing)}")
    unjudged = [suite for suite in suites if not pairs[claim.method, suite].judged]
    if unjudged and claim.measure == "points":
        raise UserError(f"{where} has no verdicts on {', '.join(unjudged)}; score it first")
    return [pairs[claim.method, suite] for suite in suites]


def _claim_row(claim: Claim, runs: list[Run], level: float) -> dict[str, Any]:
    """A claim's row, with the counts that `with_words` reads; points have their interval from
    there."""
    run = runs[0]
    labels = method_labels(run)
    titles = suite_titles(run)
    methods = run.config.methods
    pairs = _pairs(claim, run)
    flips = flips_of(pairs)
    judged = sum(pair.problems for pair in pairs)
    row = {
        "claim": claim.claim,
        "record": claim.record,
        "method": labels[claim.method],
        "reference": labels[claim.reference],
        "suites": ", ".join(titles[suite] for suite in claim.suites) or "all",
        "measure": claim.measure,
        "items": judged,
        "value": math.nan,
        "low": math.nan,
        "high": math.nan,
        "word": "",
        "goal": "",
        "others": sum(m.method == methods[claim.method].method for m in methods.values()) - 1,
        "sessions": "",
        "judged": judged,
        "flips": flips,
    }
    if claim.measure == "speed":
        items = sum(len(pair.seconds) for pair in pairs)
        return row | {"items": items} | _speed_of_sessions(claim, runs, level)
    return row | {"value": 100 * mean_difference(flips)}


def _speed_of_sessions(claim: Claim, runs: list[Run], level: float) -> dict[str, Any]:
    """The mean speed of a claim over timed sessions, an interval that covers each one's, its word,
    and the speeds by threads."""
    rows = []
    for run in runs:
        value, low, high = speed_of(_pairs(claim, run), level)
        if math.isnan(value):
            raise UserError(f"claim {claim.claim!r}: {run.folder} was not timed")
        threads = (run.speed or run).meta.environment.get("threads")
        rows.append({"value": value, "low": low, "high": high, "threads": threads})
    speeds = pd.DataFrame(rows)
    low = speeds["low"].min()
    high = speeds["high"].max()
    texts = []
    if len(speeds) > 1:
        for threads, values in speeds.groupby("threads")["value"]:
            texts.append(f"{', '.join(f'{value:.2f}' for value in values)} on {threads!s}")
    return {
        "value": speeds["value"].mean(),
        "low": low,
        "high": high,
        "word": word(low - 1, high - 1, SAME_SPEED),
        "sessions": "; ".join(texts),
    }
