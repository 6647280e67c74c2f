"""The regression gate: a run against another, and this project's speed against a revision of it.

    python harness/gate.py NEW --against OLD --accuracy 5 --speed 0.05  # within tolerances
    python harness/gate.py RUN --against results/golden/nano            # tokens, costs, verdicts
    python harness/gate.py RUN --against-rev HEAD~1                     # both on this machine, now

With --accuracy or --speed, of runs in any repository, a suite's accuracy may be that many points
lower, and a method's speed over LLaDA that share; more forwards are an error, unless --forwards
allows them. Without either option any other token, text or verdict is an error, and on the golden
records' platform any other cost.
--against-rev compares this project's code: slower by more than --tolerance, with its whole
interval, in two rounds is an error, and so are other tokens, more forwards and, without --against,
other verdicts when the revision judges RUN's responses. Exit code 1 if anything changed, 2 if the
two cannot be compared.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError, one_line_errors
from harness.options import option, parsed


@dataclass(frozen=True, kw_only=True)
class GateOptions:
    """What is judged, and against what."""

    run: Path = option("folder of the run to judge", positional=True)
    against: Path | None = option("folder of an older run, or of golden records", metavar="OLD")
    accuracy: float | None = option("points that a suite may lose", least=0, metavar="POINTS")
    speed: float | None = option("share of speed over LLaDA to lose", least=0, metavar="SHARE")
    forwards: float = option("share of forwards to take more (default 0)", 0.0, least=0)
    first: int | None = option("RUN has only the first N items of OLD", least=1, metavar="N")
    against_rev: str | None = option("revision of the harness to compare with", metavar="REV")
    items: int = option("items a suite for --against-rev (default 5)", 5, least=1)
    methods: str | None = option("comma-separated, for --against-rev (default: all of the run)")
    tolerance: float = option("share of speed that may be lost (default 0.05)", 0.05, least=0)


def main(line: list[str] | None = None) -> int:
    """The command line; 1 if something regressed."""
    options = parsed(GateOptions, line, __doc__)
    if options.against is None and options.against_rev is None:
        raise UserError("nothing to compare with: give --against FOLDER or --against-rev REV")
    within = options.accuracy is not None or options.speed is not None
    if within and options.against is None:
        raise UserError("--accuracy and --speed compare two runs: add --against OLD, the older one")
    # Set before torch is imported: threads that spin while they wait take the time of the process
    # that is measured.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from harness.measures.seconds import read_measured
    from harness.records.store import read_run
    from harness.regression.golden import first_items, judge_records
    from harness.regression.speed import judge_speed
    from harness.regression.tolerance import judge_runs
    from harness.regression.verdicts import judge_verdicts

    # Tolerances compare speed, which an untimed run has in its folder `speed`; tokens and verdicts
    # are compared as recorded.
    read = read_measured if within else read_run
    run = read(options.run)
    passed = True
    if run.items.empty:
        raise UserError(f"{options.run} holds no items; nothing to judge")
    if options.against is not None:
        old = read(options.against)
        if options.first is not None:
            old = first_items(old, options.first)
        if within:
            passed = judge_runs(run, old, options.accuracy, options.speed, options.forwards)
        else:
            passed = judge_records(run, old)
    if options.against_rev is not None:
        passed &= judge_speed(
            run,
            options.against_rev,
            options.methods,
            items=options.items,
            tolerance=options.tolerance,
        )
        # Golden records have verdicts already.
        if options.against is None:
            passed &= judge_verdicts(run, options.against_rev)
    return int(not passed)


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
