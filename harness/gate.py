"""The regression gate: a run against golden records, and this tree's speed against another revision's.

    python harness/gate.py RUN --against results/golden/nano   # text, tokens, costs, verdicts
    python harness/gate.py RUN --against-rev HEAD~1            # speed, both measured now, interleaved

Any other token, text or verdict is an error, and on the golden records' platform any other cost. --against-rev measures
both trees in turn on this machine: slower by more than --tolerance, with its whole interval, in two rounds is an error,
and so are other tokens or more forwards. Exit code 1 if anything changed, 2 if the two cannot be compared.
"""

import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError, one_line_errors
from harness.options import option, parsed


@dataclass(frozen=True, kw_only=True)
class GateOptions:
    """What is judged, and against what."""

    run: Path = option("folder of the run to judge", nargs=None)
    against: Path | None = option("folder of golden records", metavar="GOLDEN")
    first: int | None = option("RUN has only the first N items a suite of GOLDEN (default: all)", least=1, metavar="N")
    against_rev: str | None = option("also measure speed against this revision of the repository", metavar="REV")
    items: int = option("items a suite for --against-rev (default 5)", 5, least=1)
    methods: str | None = option("comma-separated, for --against-rev (default: all of the run)")
    tolerance: float = option("share of speed that may be lost (default 0.05)", 0.05, least=0)
    allow_changed_responses: bool = option("other tokens, or more forwards, than REV's are meant", False)


def main(line: list[str] | None = None) -> int:
    """The command line; 1 if something regressed."""
    options = parsed(GateOptions, line, __doc__)
    if options.against is None and options.against_rev is None:
        raise UserError("nothing to compare with: give --against FOLDER or --against-rev REV")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin take another process's time
    from harness.records.store import read_run
    from harness.regression.golden import judge_records
    from harness.regression.speed import judge_speed

    run, passed = read_run(options.run), True
    if run.items.empty:
        raise UserError(f"{options.run} holds no items; nothing to judge")
    if options.against is not None:
        passed = judge_records(run, read_run(options.against, windows=False), options.first)
    if options.against_rev is not None:
        passed &= judge_speed(
            run,
            options.against_rev,
            options.methods,
            items=options.items,
            tolerance=options.tolerance,
            allow_changed_responses=options.allow_changed_responses,
        )
    return 0 if passed else 1


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # OpenCompass and its packages log every step; errors still show
    sys.exit(one_line_errors(main))
