"""The claims of this repository's pages, compared from its records.

    python tables/claims.py results/reference/claims.toml

Writes claims.md and claims.csv beside the file: for every claim the two methods, the difference in points of accuracy
or the ratio of speed, its interval after correction for all claims of the file, and the word that it deserves
(docs/measuring.md). The same records give the same bytes.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from harness.errors import UserError, one_line_errors
from harness.measures.against import CLAIMS, MARGIN, SAME_SPEED, compare, read_claims
from harness.options import option, parsed
from harness.records.store import write_atomically
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


BEGIN = "Every claim, from records"  # of a page that this command wrote


def markdown(compared: pd.DataFrame) -> str:
    """The frame of `measures.claims.compare` as a page."""
    points = int((compared["measure"] == "points").sum())
    lines = [
        f"{BEGIN}; every number is a mean over its suites. Points of accuracy: Tango's intervals of "
        f"the suites put together, after Holm over {points} claims. Speed: ratio of seconds, bootstrap, after "
        f"Bonferroni over {len(compared) - points}; of several timed sessions their mean, with an interval that covers "
        "each one's. Ahead or behind: an interval without 0 (1 for a speed), and of "
        f"points an exact test that agrees; level: one within {MARGIN:g} points ({100 * SAME_SPEED:g}% for a speed); "
        "otherwise not shown. A goal holds if the interval lies above it. Others: settings of the same decoder that "
        "the record has beside this one. Sessions: the speed in each, by CPU threads.",
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
        cells = [*named, number.format(row["value"]), ends, shown, row["others"], row["sessions"], row["record"]]
        lines.append(f"| {' | '.join(' '.join(escape_markdown(str(each)).split()) for each in cells)} |")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, kw_only=True)
class ClaimOptions:
    """Which claims are compared."""

    claims: Path = option("the claims, each with its record and methods", positional=True, metavar="FILE.toml")


def main(line: list[str] | None = None) -> int:
    """The command line; 0 when both files are written."""
    path = parsed(ClaimOptions, line, __doc__).claims
    if path.suffix != ".toml":
        raise UserError(f"{path} must be a .toml file; claims.md and claims.csv are written next to it")
    page, sheet = path.with_suffix(".md"), path.with_suffix(".csv")
    for file, begin in ((page, BEGIN), (sheet, ",".join(CLAIMS[:3]))):
        if file.exists() and not file.read_bytes().startswith(begin.encode()):
            raise UserError(f"{file} was not written by this command, and would be replaced: rename it or {path.name}")
    compared = compare(read_claims(path), path.parent)
    write_atomically(page, markdown(compared))
    write_atomically(sheet, compared.to_csv(index=False, lineterminator="\n"))
    print(markdown(compared))
    return 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
