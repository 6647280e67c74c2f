"""The regression gate: a run against golden records, and this tree's speed against another revision's.

    python harness/gate.py RUN --against results/golden/nano            # text, tokens, costs, verdicts
    python harness/gate.py RUN --against results/golden/nano --update   # make RUN the golden record
    python harness/gate.py RUN --against-rev HEAD~1                     # speed, both measured now, interleaved

At temperature 0 the comparison is exact: any other token, text, verdict or forward pass is an error. On another class
of platform than the golden record's (processor, vector instructions, threads, torch) an item is excused only if it is
proven that rounding made the difference: a tie, where decoded again with logits moved as rounding moves them it is the
golden one; other costs of golden tokens, where the revision that made the records has them on this machine too. Of
samples accuracy must not be inferior, paired by item, by more than --margin points. Speed is never compared across
machines or days: --against-rev checks the revision out and measures both trees in turn, with the methods and settings
of RUN; slower by more than --tolerance, with its whole interval, in two rounds is an error, and so are other tokens or
more forwards than the revision's. Exit code 1 if anything regressed, 2 if the two cannot be compared.
"""

import argparse
import logging
import os
import sys
from pathlib import Path

from harness.errors import UserError, one_line_errors

MARGIN = 5.0
TOLERANCE = 0.05
ITEMS = 5


def arguments_of(line: list[str] | None) -> argparse.Namespace:
    """The parsed command line. Raises UserError for options that do not go together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("run", type=Path, help="folder of the run to judge")
    add("--against", type=Path, metavar="GOLDEN", help="folder of golden records")
    add("--first", type=int, metavar="N", help="RUN has only the first N items a suite of GOLDEN (default: all)")
    add("--update", action="store_true", help="write the run's records to GOLDEN, and say what changed")
    add("--margin", type=float, default=MARGIN, help=f"points of accuracy that may not be lost (default {MARGIN:g})")
    add("--allow-unscored", metavar="SUITES", default="", help="their verdicts may be missing, as without a sandbox")
    add("--against-rev", metavar="REV", help="also measure speed against this revision of the repository")
    add("--items", type=int, default=ITEMS, help=f"items a suite for --against-rev (default {ITEMS})")
    add("--methods", help="comma-separated, for --against-rev (default: all of the run)")
    add("--tolerance", type=float, default=TOLERANCE, help=f"share of speed that may be lost (default {TOLERANCE:g})")
    add("--allow-changed-responses", action="store_true", help="other tokens, or more forwards, than REV's are meant")
    asked = parser.parse_args(line)
    if asked.against is None and asked.against_rev is None:
        raise UserError("nothing to compare with: give --against FOLDER, --against-rev REV, or both")
    if asked.update and asked.against is None:
        raise UserError("--update needs --against, the folder of the golden records")
    if asked.update and asked.first is not None:
        raise UserError("--update writes all items: --first is for comparing")
    for name in ("items", "first"):
        if (number := getattr(asked, name)) is not None and number < 1:
            raise UserError(f"--{name} {number}: at least 1 is needed")
    return asked


def main(line: list[str] | None = None) -> int:
    """The command line; 1 if something regressed."""
    asked = arguments_of(line)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin take another process's time
    from harness.regression.revision import cleaned_up

    with cleaned_up():
        return 0 if judged(asked) else 1


def judged(asked: argparse.Namespace) -> bool:
    """Whether the run passes; prints what was found."""
    from harness.records.store import read_run
    from harness.regression.judgement import judge_records, update
    from harness.regression.speed import judge_speed

    run = read_run(asked.run)
    if run.items.empty:
        raise UserError(f"{asked.run} holds no items; nothing to judge")
    passed = True
    if asked.update:
        update(run, asked.against)
    elif asked.against is not None:
        unscored = [name.strip() for name in asked.allow_unscored.split(",")]
        passed = judge_records(run, read_run(asked.against, windows=False), asked.margin, asked.first, unscored)
    if asked.against_rev is not None:
        passed &= judge_speed(
            run, asked.against_rev, asked.methods, asked.items, asked.tolerance, asked.allow_changed_responses
        )
    return passed


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # OpenCompass and its packages log every step; errors still show
    sys.exit(one_line_errors(main))
