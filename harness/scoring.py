"""Score a finished run again, with OpenCompass's evaluators.

    python harness/scoring.py results/runs/NAME

HumanEval and MBPP execute code that a model wrote: each program in a process of its own that Landlock and seccomp, or
bubblewrap, keep from files, processes and the network, with limits on memory and time. Where neither works, their items
are not scored, and the tables say so; --unsafe-code-execution runs such code unprotected.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError, one_line_errors
from harness.options import UNSAFE_HELP, option, parsed


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """Which run is scored, and how."""

    run: Path = option("folder of a run", nargs=None)
    unsafe_code_execution: bool = option(UNSAFE_HELP, False)


def main(line: list[str] | None = None) -> int:
    """The command line."""
    options = parsed(ScoringOptions, line, __doc__)

    from harness.measures.table import measure, suite_titles
    from harness.records.store import read_run
    from harness.runs.folder import exclusive
    from harness.sandbox.scoring import describe_scoring, score_run

    if read_run(options.run).items.empty:
        raise UserError(f"{options.run} holds no items yet; there is nothing to score")
    with exclusive(options.run):
        print(describe_scoring(score_run(options.run, options.unsafe_code_execution)))
    run = read_run(options.run)
    titles = suite_titles(run)
    for row in measure(run).to_dict("records"):
        accuracy = f"{row['accuracy']:6.2f}% of {row['scored']}" if row["scored"] else "not scored"
        print(f"{row['method']:12} {titles[row['suite']]:10} {accuracy}")
    return 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
