"""Comparing methods with one reference, problem by problem; and a page's claims, which are such
comparisons with one correction for all.

A comparison has one of four words. They depend on its interval after Holm's correction over all
comparisons that are made together: `ahead` if the whole interval is above 0 and the exact test
agrees, `behind` if it is below 0, `level` if it lies within MARGIN points of 0, and otherwise `not
shown`. A comparison over several suites is of their mean, each with the same weight: arithmetic of
points, geometric of ratios of seconds.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pandas as pd
from msgspec import Meta
from scipy.stats import gmean

from harness.errors import UserError, explained
from harness.measures.intervals import NO_INTERVAL, Paired, Pairs, paired, speed_of
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

# The suite of rows that are means over all suites.
ALL = "all"
# Points of accuracy within which two methods are level.
MARGIN = 2.0
NOT_SHOWN = "not shown"
Session = tuple[Run, Pairs]  # a timed session of a run, and its methods against a reference


def against(run: Run, reference: str) -> pd.DataFrame:
    """Compare all methods of a run with a reference.

    Args:
        run: as read.
        reference: the method that all others are compared with.

    Returns:
        A row per other method and suite, and per method one of all suites (ALL), whose points are
        the arithmetic and whose speed is the geometric mean over the suites. NaN where there is
        nothing to compare.

        items, lost, gained, same: of `Paired`; judged: its `problems`. points: 100 * (gained -
        lost) / judged items, with its 95% interval (`stats.mean_difference_interval`). holm_low,
        holm_high: its interval after Holm over all rows. word: what it shows. needed: if it shows
        nothing, the number of problems at which such a difference would. speed: the reference's
        total seconds / the method's, with its bootstrap interval.

    Raises:
        UserError: the run has no such method with items, or no other method shares any with it.
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
        by_suite = {suite: pairs[method, suite] for suite in suites if (method, suite) in pairs}
        if method == reference or not by_suite:
            continue
        rows += [_row(method, suite, [pair]) for suite, pair in by_suite.items()]
        # A mean over some of the suites has points, but no speed that compares with others.
        if len(suites) > 1:
            whole = len(by_suite) == len(suites)
            rows.append(_row(method, ALL, list(by_suite.values()), whole))
    if not rows:
        raise UserError(
            f"--against {reference}: it has no items yet, or no other method shares problems"
            " with it"
        )
    return with_words(pd.DataFrame(rows)).drop(columns="flips")


def outside_methods(run: Run) -> list[str]:
    """The methods whose decoders come from outside the project."""
    registered = [plugin.registered.get("decoders", []) for plugin in run.meta.plugins]
    decoders = {name for names in registered for name in names}
    return [name for name, method in run.config.methods.items() if method.method in decoders]


def marks_against(run: Run, reference: str) -> dict[str, dict[Any, str]]:
    """The letters of MARKS on comparisons with a reference.

    A comparison has the marks of both numbers, the method's and the reference's.

    Args:
        run: as read.
        reference: the method that others are compared with.

    Returns:
        `points` and `speed` -> (method, suite) -> letters.
    """
    frame = with_marks(measure(run), run, reference).set_index(PAIR)
    marks = {}
    for name, column in (("points", "accuracy_marks"), ("speed", "speed_marks")):
        # "i" (fewer items than other rows) is no matter here: both numbers are of shared items.
        letters: dict[Any, str] = frame[column].str.replace("i", "").to_dict()
        marks[name] = {
            pair: union(text, letters.get((reference, pair[1]), ""))
            for pair, text in letters.items()
        }
    return marks


def with_words(compared: pd.DataFrame) -> pd.DataFrame:
    """Add holm_low, holm_high, word and needed (see `against`) to comparisons made together.

    Args:
        compared: a row per comparison, with the columns judged, and flips: the `stats.Flips` of its
            suites.
    """
    flips: list[list[Flips]] = compared["flips"].tolist()
    p_values = [mean_difference_p_value(suites) if suites else math.nan for suites in flips]
    adjusted = holm(p_values)
    rows = []
    for number, level in enumerate(holm_levels(p_values)):
        low, high = mean_difference_interval(flips[number], level) if flips[number] else NO_INTERVAL
        # The interval is approximate: at a few flips it may exclude 0 where the exact test does
        # not.
        conclusion = word(100 * low, 100 * high, rejected=adjusted[number] < 1 - LEVEL)
        needed = math.nan
        if conclusion == NOT_SHOWN:
            needed = mean_difference_enough(flips[number], level, compared["judged"].iloc[number])
        rows.append([100 * low, 100 * high, conclusion, needed])
    names = ["holm_low", "holm_high", "word", "needed"]
    return compared.assign(**pd.DataFrame(rows, columns=names, index=compared.index))


def word(low: float, high: float, margin: float = MARGIN, rejected: bool = True) -> str:
    """The word for an interval of a difference: ahead, behind, level or not shown.

    Args:
        low, high: the ends of the interval.
        margin: the largest difference that counts as level.
        rejected: whether the exact test rejects that there is no difference.

    Returns:
        The word; "" for no interval.
    """
    if math.isnan(low):
        return ""
    if (low > 0 or high < 0) and rejected:
        return "ahead" if low > 0 else "behind"
    return "level" if -margin < low and high < margin else NOT_SHOWN


def flips_of(pairs: Sequence[Paired]) -> list[Flips]:
    """The counts (lost, gained, judged) of each suite with judged items. With several seeds they
    are scaled to the number of independent verdicts."""
    return [
        (pair.worth * pair.lost, pair.worth * pair.gained, pair.worth * pair.judged)
        for pair in pairs
        if pair.judged
    ]


def _row(method: str, suite: str, pairs: Sequence[Paired], whole: bool = True) -> dict[str, Any]:
    """A row of `against`, over one pair per suite. It has a speed if these are all suites (`whole`)
    and were timed."""
    flips = flips_of(pairs)
    points = mean_difference(flips) if flips else math.nan
    low, high = mean_difference_interval(flips) if flips else NO_INTERVAL
    speed = speed_of(pairs) if whole else (math.nan, *NO_INTERVAL)
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


# A ratio of seconds is level if its whole interval is nearer to 1 than this.
SAME_SPEED = 0.05


class Claim(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A comparison that a page makes.

    Attributes:
        claim: the claim in words.
        record: the folder of the run, below the folder of the claims' file.
        method: that is compared.
        reference: the method that it is compared with.
        suites: some of the run's; [] for all.
        measure: points of accuracy (arithmetic mean over the suites), or speed (times the
            reference's, geometric mean).
        at_least: a goal, written down before the run, in points or as a ratio. It holds if the
            whole interval lies above it.
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
    """The claims of a TOML file.

    Raises:
        UserError: it cannot be read, or is no file of claims.
    """
    keys = f"the keys of a [[claim]] are {', '.join(Claim.__struct_fields__)}"
    with explained(
        f"{path} is no file of claims", OSError, ValueError, msgspec.ValidationError, instead=keys
    ):
        return msgspec.convert(tomllib.loads(path.read_text("utf-8")), Claims).claim


def records_of(claims: list[Claim], folder: Path) -> dict[str, list[Run]]:
    """The timed sessions of each claim's run, by the claim's `record`.

    Args:
        claims: of `read_claims`.
        folder: the folder that the records are in.

    Raises:
        UserError: as `timed_sessions`.
    """
    records = dict.fromkeys(claim.record for claim in claims)
    return {record: timed_sessions(folder / record) for record in records}


def compare(claims: list[Claim], runs: Mapping[str, list[Run]]) -> pd.DataFrame:
    """Check claims against their records.

    Args:
        claims: of `read_claims`.
        runs: of `records_of`.

    Returns:
        A row per claim; the CSV has all columns but marks.

        value: points, or speed as in `against`, the geometric mean of the timed sessions. low,
        high: its interval, of points after Holm over all claims of points, of speed at Bonferroni's
        level over all claims of speed; with several sessions it covers the interval of each. goal:
        whether the interval lies above at_least, "" without a goal. others: the number of other
        settings of the method's decoder in the record, of which this may be the best. sessions: the
        speed of each of several sessions, by threads. marks: letters of MARKS on both numbers.

    Raises:
        UserError: a method or suite is missing, or a claim of speed is of a run that was not timed.
    """
    # Bonferroni's level: a bootstrap interval comes without the p-value that Holm's procedure
    # orders.
    level = 1 - (1 - LEVEL) / max(1, sum(claim.measure == "speed" for claim in claims))
    compared = dict.fromkeys((claim.record, claim.reference) for claim in claims)
    sessions: dict[tuple[str, str], list[Session]] = {
        (record, reference): [(run, paired(run, reference)) for run in runs[record]]
        for record, reference in compared
    }
    frame = pd.DataFrame(
        [_claim_row(claim, sessions[claim.record, claim.reference], level) for claim in claims]
    )
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
        goal = ""
        if claim.at_least is not None:
            goal = "holds" if low > claim.at_least else NOT_SHOWN
        goals.append(goal)
    return frame.assign(goal=goals, marks=texts).drop(columns=["judged", "flips"])


def _suites(claim: Claim, run: Run) -> list[str]:
    return claim.suites or list(suite_titles(run))


def _pairs(claim: Claim, run: Run, pairs: Pairs) -> list[Paired]:
    """The method compared with the reference on each of the claim's suites."""
    where = f"claim {claim.claim!r}: {run.folder}"
    for name in (claim.method, claim.reference):
        if name not in method_labels(run):
            raise UserError(f"{where} has no method {name}; it has {', '.join(method_labels(run))}")
    suites = _suites(claim, run)
    missing = [suite for suite in suites if (claim.method, suite) not in pairs]
    if missing:
        raise UserError(f"{where} has no problems of both methods on {', '.join(missing)}")
    unjudged = [suite for suite in suites if not pairs[claim.method, suite].judged]
    if unjudged and claim.measure == "points":
        raise UserError(f"{where} has no verdicts on {', '.join(unjudged)}; score it first")
    return [pairs[claim.method, suite] for suite in suites]


def _claim_row(claim: Claim, sessions: list[Session], level: float) -> dict[str, Any]:
    """A claim's row, with the counts that `with_words` needs to add the interval of points."""
    run = sessions[0][0]
    pairs = _pairs(claim, *sessions[0])
    labels = method_labels(run)
    titles = suite_titles(run)
    methods = run.config.methods
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
        return row | {"items": items} | _speed_of_sessions(claim, sessions, level)
    return row | {"value": 100 * mean_difference(flips)}


def _speed_of_sessions(claim: Claim, sessions: list[Session], level: float) -> dict[str, Any]:
    """The geometric mean of a claim's speed over timed sessions, an interval that covers that of
    each, its word, and the speeds by threads."""
    rows = []
    for run, pairs in sessions:
        value, low, high = speed_of(_pairs(claim, run, pairs), level)
        if math.isnan(value):
            raise UserError(f"claim {claim.claim!r}: {run.folder} was not timed")
        threads = (run.speed or run).meta.environment.get("threads")
        rows.append({"value": value, "low": low, "high": high, "threads": threads})
    speeds = pd.DataFrame(rows)
    # The interval covers that of each session, so that a claim must hold in all of them.
    low = speeds["low"].min()
    high = speeds["high"].max()
    texts = []
    if len(speeds) > 1:
        for threads, values in speeds.groupby("threads")["value"]:
            texts.append(f"{', '.join(f'{value:.2f}' for value in values)} on {threads!s}")
    return {
        "value": gmean(speeds["value"]),
        "low": low,
        "high": high,
        "word": word(low - 1, high - 1, SAME_SPEED),
        "sessions": "; ".join(texts),
    }
