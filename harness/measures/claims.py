"""Claims of a page as comparisons that code makes from records, with one correction for all of them."""

import math
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pandas as pd
from msgspec import Meta

from harness.errors import UserError
from harness.measures.against import with_words, word
from harness.measures.intervals import Paired, paired
from harness.measures.seconds import read_measured
from harness.measures.table import method_labels, suite_titles
from harness.records.store import Run
from harness.stats import LEVEL, speedup_interval

SAME_SPEED = 0.05  # a ratio whose whole interval is nearer to 1 than this is level
CLAIMS = [
    "claim",
    "record",
    "method",
    "reference",
    "suites",
    "measure",
    "items",
    "value",
    "low",
    "high",
    "word",
    "goal",
]


class Claim(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A comparison that a page makes.

    claim: in words. record: folder of the run, below the file's. method, reference: names in the run. suites: some of
    its suites; [] for all. measure: points of accuracy, or speed (times the reference's). at_least: what the interval
    must lie above for a goal to hold, in points or as a ratio.
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

    claim: list[Claim]


def read_claims(path: Path) -> list[Claim]:
    """The claims of a TOML file. Raises UserError if it cannot be read, or has something else."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Claims).claim
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, msgspec.ValidationError) as error:
        raise UserError(f"{path} is no file of claims: {error}") from error


def compare(claims: list[Claim], folder: Path) -> pd.DataFrame:
    """A row per claim, columns CLAIMS; records are below `folder`.

    value: points, or the mean over the suites of the reference's total seconds / the method's. low, high: its interval
    after Holm over all claims of points, or at the level of Bonferroni over all claims of speed. word: what it shows.
    goal: "holds" if the interval lies above at_least, "not shown" if not, "" without one. Raises UserError for a
    record, method or suite that is not there, and for a speed of a run that was not timed.
    """
    runs = {record: read_measured(folder / record) for record in dict.fromkeys(claim.record for claim in claims)}
    level = 1 - (1 - LEVEL) / max(1, sum(claim.measure == "speed" for claim in claims))
    rows = [_row(claim, _pairs(claim, runs[claim.record]), runs[claim.record], level) for claim in claims]
    frame = pd.DataFrame(rows)
    points = frame["measure"] == "points"
    if points.any():
        found = with_words(frame[points].astype({"lost": int, "gained": int, "judged": int}))
        frame.loc[points, ["low", "high", "word"]] = found[["holm_low", "holm_high", "word"]].to_numpy()
    goals = [claim.at_least for claim in claims]
    frame["goal"] = [
        "" if goal is None else "holds" if low > goal else "not shown"
        for goal, low in zip(goals, frame["low"], strict=True)
    ]
    return frame[CLAIMS]


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
    return [found[claim.method, suite] for suite in suites]


def _row(claim: Claim, pairs: list[Paired], run: Run, level: float) -> dict[str, Any]:
    """A claim's row, with the counts that `with_words` reads; points have their interval from there."""
    labels, titles = method_labels(run), suite_titles(run)
    judged, lost, gained = (sum(getattr(pair, name) for pair in pairs) for name in ("judged", "lost", "gained"))
    value, ends, said = math.nan, (math.nan, math.nan), ""
    if claim.measure == "speed":
        totals = [pair.seconds.sum(0) for pair in pairs]
        if any(math.isnan(above + below) or not below for above, below in totals):
            raise UserError(f"claim {claim.claim!r}: {run.folder} was not timed")
        value = sum(above / below for above, below in totals) / len(totals)
        ends = speedup_interval([pair.seconds for pair in pairs], level)
        said = word(ends[0] - 1, ends[1] - 1, SAME_SPEED)
    elif judged:
        value = 100 * (gained - lost) / judged
    return {
        "claim": claim.claim,
        "record": claim.record,
        "method": labels[claim.method],
        "reference": labels[claim.reference],
        "suites": ", ".join(titles[suite] for suite in claim.suites) or "all",
        "measure": claim.measure,
        "items": judged if claim.measure == "points" else sum(len(pair.seconds) for pair in pairs),
        **{"value": value, "low": ends[0], "high": ends[1], "word": said},
        **{"judged": judged, "lost": lost, "gained": gained},
    }
