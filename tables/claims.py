"""The claims of this repository's pages, compared from its records.

    python tables/claims.py results/reference/claims.toml

Writes claims.md and claims.csv beside the file: for every claim the two methods, the difference in
points of accuracy or the ratio of speed, its interval after correction for all claims of the file,
and the word that it deserves (docs/measuring.md); then what tables say of the records. The same
records give the same bytes. Exit code 1 if a goal is not shown.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pandas as pd

from harness.errors import one_line_errors
from harness.measures.against import (
    MARGIN,
    NOT_SHOWN,
    SAME_SPEED,
    Claim,
    compare,
    read_claims,
    records_of,
)
from harness.measures.captions import setting, timing
from harness.measures.notes import notes_of
from harness.measures.table import REFERENCE, measure, method_labels
from harness.options import option, parsed
from harness.records.store import Run, write_atomically
from tables.output import escape_markdown

HEADINGS = [
    "Claim",
    "Method",
    "Beside",
    "Suites",
    "Problems",
    "Difference",
    "Interval",
    "Shown",
    "Others",
    "Sessions",
    "Record",
]


def about(sessions: Sequence[Run], claims: Sequence[Claim]) -> list[str]:
    """What tables say of a record: a text of `captions.setting`, then the notes of the numbers that
    are compared.

    sessions: of `measures.seconds.timed_sessions`.
    """
    run = sessions[0]
    speeds = any(claim.measure == "speed" for claim in claims)
    doubts = (
        [*dict.fromkeys(sentence for each in sessions for sentence in timing(each))]
        if speeds
        else []
    )
    found = []
    for reference in dict.fromkeys(claim.reference for claim in claims):
        numbers = [
            (method, suite, "seconds_note" if claim.measure == "speed" else "accuracy_note")
            for claim in claims
            if claim.reference == reference
            for method, suite in product(
                (claim.method, reference), claim.suites or run.config.suites
            )
        ]
        beside = f"Beside {method_labels(run)[reference]}: " if reference != REFERENCE else ""
        found += [beside + note for note in notes_of(run, numbers, reference)]
    return [" ".join(setting(measure(run), run, doubts)), *found]


def markdown(compared: pd.DataFrame, records: Mapping[str, Sequence[str]] | None = None) -> str:
    """The frame of `measures.against.compare` as a page, with what is said of its records."""
    points = int((compared["measure"] == "points").sum())
    lines = [
        (
            "Every claim, from records; every number is a mean over its suites. Points of"
            f" accuracy: Tango's intervals of the suites put together, after Holm over {points}"
            " claims. Speed: ratio of seconds, bootstrap, after Bonferroni over"
            f" {len(compared) - points}; of several timed sessions their mean, with an interval"
            " that covers each one's. Ahead or behind: an interval without 0 (1 for a speed), and"
            f" of points an exact test that agrees; level: one within {MARGIN:g} points"
            f" ({100 * SAME_SPEED:g}% for a speed); otherwise not shown. A goal holds if the"
            " interval lies above it. Others: settings of the same decoder that the record has"
            " beside this one. Sessions: the speed in each, by CPU threads."
        ),
        "",
        f"| {' | '.join(HEADINGS)} |",
        "|---|---|---|---|---:|---:|---|---|---:|---|---|",
    ]
    for row in compared.to_dict("records"):
        is_points = row["measure"] == "points"
        number = "{:+.1f}" if is_points else "{:.2f}x"
        ends = " to ".join(f"{row[end]:.{1 if is_points else 2}f}" for end in ("low", "high"))
        shown = row["word"] + (f"; goal {row['goal']}" if row["goal"] else "")
        named = [row["claim"], row["method"], row["reference"], row["suites"], row["items"]]
        cells = [
            *named,
            number.format(row["value"]),
            ends,
            shown,
            row["others"],
            row["sessions"],
            row["record"],
        ]
        lines.append(
            f"| {' | '.join(' '.join(escape_markdown(str(each)).split()) for each in cells)} |"
        )
    for record, (first, *notes) in (records or {}).items():
        lines += [
            "",
            f"**{escape_markdown(record)}**: {escape_markdown(first)}",
            *([""] if notes else []),
        ]
        lines += [f"* {escape_markdown(note)}" for note in notes]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, kw_only=True)
class ClaimOptions:
    """Which claims are compared."""

    claims: Path = option(
        "the claims, each with its record and methods", positional=True, metavar="FILE.toml"
    )


def main(line: list[str] | None = None) -> int:
    """The command line; 1 if a goal is not shown."""
    path = parsed(ClaimOptions, line, __doc__).claims
    page = path.with_suffix(".md")
    sheet = path.with_suffix(".csv")
    claims = read_claims(path)
    runs = records_of(claims, path.parent)
    compared = compare(claims, runs)
    said = {
        record: about(own, [each for each in claims if each.record == record])
        for record, own in runs.items()
    }
    write_atomically(page, markdown(compared, said))
    write_atomically(sheet, compared.to_csv(index=False, lineterminator="\n"))
    print(markdown(compared, said))
    return int(compared["goal"].eq(NOT_SHOWN).any())


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
