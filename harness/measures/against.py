"""Methods beside one of them, problem by problem; and a page's claims, which are such comparisons with one correction.

A comparison has one of four words, by its interval after Holm over the family of comparisons that are made together:
`ahead` if the whole interval is above 0, `behind` if it is below, `level` if it lies within MARGIN points of 0, and
otherwise `not shown`. `against_reference` says in what a method's settings on a suite differ from LLaDA's.
"""

import math
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pandas as pd
from msgspec import UNSET, Meta

from harness.errors import UserError, explained
from harness.measures.intervals import Paired, paired
from harness.measures.seconds import read_measured
from harness.measures.table import REFERENCE, method_labels, suite_titles
from harness.records.schema import Setting
from harness.records.store import Run
from harness.stats import LEVEL, holm_levels, paired_growth, paired_interval, paired_p_value, speedup_interval

ALL = "all"  # all suites as one
MARGIN = 2.0  # points
NOT_SHOWN = "not shown"
AGAINST = [
    *("method", "suite", "items", "judged", "lost", "gained", "points", "points_low", "points_high"),
    *("holm_low", "holm_high", "word", "needed"),
    *("speed", "speed_low", "speed_high", "same"),
]


def against(run: Run, reference: str) -> pd.DataFrame:
    """A row per method other than the reference and suite, and one of all suites (ALL); columns are AGAINST.

    items, judged, lost, gained, same: of `Paired`. points: 100 * (gained - lost) / judged, with Tango's 95% interval.
    holm_low, holm_high: its interval after Holm over all rows; word: what it shows; needed: how many problems a
    difference like this would need for that interval to exclude 0. speed: the reference's total seconds / the method's,
    with its bootstrap interval; of ALL the plain mean over the suites. NaN where there is nothing to compare. Raises
    UserError if the run has no such method with items, or no other shares any with it.
    """
    methods, suites = list(method_labels(run)), list(suite_titles(run))
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
            wrong = f"the run has no such method; it has {', '.join(methods)}"
        elif not any(method == reference for method, _ in pairs):
            wrong = "there are no items of it yet"
        raise UserError(f"--against {reference}: {wrong}")
    return with_words(pd.DataFrame(rows))[AGAINST]


def with_words(compared: pd.DataFrame) -> pd.DataFrame:
    """Comparisons that are made together, with holm_low, holm_high, word, and needed as `against` has it.

    compared: columns lost, gained and judged, and worth as `Paired` has it, where that is not 1.
    """
    own = compared[["lost", "gained", "judged"]].mul(compared.get("worth", 1.0), axis=0)
    counts = list(own.itertuples(index=False, name=None))
    levels = holm_levels([paired_p_value(lost, gained) if judged else math.nan for lost, gained, judged in counts])
    ends = [
        paired_interval(lost, gained, judged, level) if judged else (math.nan, math.nan)
        for (lost, gained, judged), level in zip(counts, levels, strict=True)
    ]
    found = 100 * pd.DataFrame(ends, columns=["holm_low", "holm_high"], index=compared.index)
    words = [word(low, high) for low, high in found.itertuples(index=False, name=None)]
    growth = [paired_growth(lost, gained, level) for (lost, gained, _), level in zip(counts, levels, strict=True)]
    needed = np.ceil(compared["judged"] * growth)
    return compared.assign(holm_low=found["holm_low"], holm_high=found["holm_high"], word=words, needed=needed)


def word(low: float, high: float, margin: float = MARGIN) -> str:
    """What an interval of a difference shows, in one word; "" for none."""
    if math.isnan(low):
        return ""
    if low > 0 or high < 0:
        return "ahead" if low > 0 else "behind"
    return "level" if -margin < low and high < margin else NOT_SHOWN


def _row(method: str, suite: str, pairs: Sequence[Paired], complete: bool = True) -> dict[str, Any]:
    """The row of a method over `pairs`, one per suite; it has a speed if they are `complete` and were timed."""
    judged, lost, gained = (sum(getattr(pair, name) for pair in pairs) for name in ("judged", "lost", "gained"))
    points, speeds, speed = (math.nan, math.nan), (math.nan, math.nan), math.nan
    worth = sum(pair.worth * pair.judged for pair in pairs) / judged if judged else 1.0
    if judged:
        points = paired_interval(worth * lost, worth * gained, worth * judged)
    totals = [pair.seconds.sum(0) for pair in pairs]
    if complete and all(len(pair.seconds) for pair in pairs) and not np.isnan(totals).any():
        speeds = speedup_interval([pair.seconds for pair in pairs])
        speed = sum(above / below for above, below in totals) / len(totals)
    return {
        "method": method,
        "suite": suite,
        "items": sum(pair.items for pair in pairs),
        "judged": judged,
        "lost": lost,
        "gained": gained,
        "worth": worth,
        "points": 100 * (gained - lost) / judged if judged else math.nan,
        "points_low": 100 * points[0],
        "points_high": 100 * points[1],
        "speed": speed,
        "speed_low": speeds[0],
        "speed_high": speeds[1],
        "same": sum(pair.same for pair in pairs),
    }


SAME_SPEED = 0.05  # a ratio whose whole interval is nearer to 1 than this is level
CLAIMS = [
    *("claim", "record", "method", "reference", "suites", "measure"),
    *("items", "value", "low", "high", "word", "goal"),
]


class Claim(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A comparison that a page makes, in words; record: folder of the run, below the file's.

    suites: some of the run's, [] for all. measure: points of accuracy, or speed (times the reference's). at_least: what
    the interval must lie above for a goal to hold, in points or as a ratio.
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
    with explained(f"{path} is no file of claims", OSError, ValueError, msgspec.ValidationError):
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Claims).claim


def compare(claims: list[Claim], folder: Path) -> pd.DataFrame:
    """A row per claim, columns CLAIMS; records are below `folder`.

    value: points, or speed as of `against`. low, high: its interval after Holm over all claims of points, or at the
    level of Bonferroni over all claims of speed. goal: whether the interval lies above at_least, "" without one. Raises
    UserError for a record, method or suite that is not there, and for a speed of a run that was not timed.
    """
    runs = {record: read_measured(folder / record) for record in dict.fromkeys(claim.record for claim in claims)}
    level = 1 - (1 - LEVEL) / max(1, sum(claim.measure == "speed" for claim in claims))
    rows = [_claim_row(claim, _pairs(claim, runs[claim.record]), runs[claim.record], level) for claim in claims]
    frame = pd.DataFrame(rows)
    points = frame["measure"] == "points"
    if points.any():
        found = with_words(frame[points].astype({"lost": int, "gained": int, "judged": int}))
        frame.loc[points, ["low", "high", "word"]] = found[["holm_low", "holm_high", "word"]].to_numpy()
    goals = [claim.at_least for claim in claims]
    frame["goal"] = [
        "" if goal is None else "holds" if low > goal else NOT_SHOWN
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


def _claim_row(claim: Claim, pairs: list[Paired], run: Run, level: float) -> dict[str, Any]:
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


END_OPTIONS = ("logits_eos_inf", "confidence_eos_eot_inf", "stop_at_eos")  # of all methods alike, where they have them
COMMIT = 7  # digits of a commit in a note


def against_reference(run: Run) -> dict[tuple[str, str], str]:
    """A note for every method and suite whose settings are not those of the run's LLaDA; "" where they are.

    And for those whose block model attends in other blocks than its own.
    """
    reference = run.config.methods.get(REFERENCE)
    usual = {} if reference is None else reference.suites
    return {
        (name, suite): ", ".join(_differences(own, usual.get(suite)))
        for name, method in run.config.methods.items()
        for suite, own in method.suites.items()
    }


def _differences(own: Setting, reference: Setting | None) -> Iterator[str]:
    if own.attends is not UNSET:
        yield f"the model attends in blocks of {own.block_length}, not in its own of {own.attends}"
    if reference is None:
        return
    found = []
    if None not in (own.gen_length, reference.gen_length) and own.gen_length != reference.gen_length:
        found.append(f"responses of {own.gen_length} tokens, LLaDA's of {reference.gen_length}")
    blocks = [_block(setting) for setting in (own, reference)]
    if None not in blocks and blocks[0] != blocks[1]:
        found.append(f"{blocks[0]}, LLaDA's {blocks[1]}")
    if found and own.published is not UNSET:
        repository, _, commit = own.published.partition("@")
        source = f"{repository}@{commit.split()[0][:COMMIT]}" if commit else own.published
        found.append(f"as published ({source})")
    yield from found
    for option in END_OPTIONS:
        here, there = (bool(setting.options.get(option)) for setting in (own, reference))
        if here != there:
            yield f"{'with' if here else 'without'} {option}"


def _block(setting: Setting) -> str | None:
    """The blocks of a response in words; None where the record does not say."""
    if setting.block_length is None:
        return None
    return "full sequence" if setting.block_length == setting.gen_length else f"blocks of {setting.block_length}"
