"""Score a finished run again, with OpenCompass's evaluators.

    python harness/scoring.py results/runs/NAME

Verdicts of all methods and suites are made anew. HumanEval and MBPP execute code that a model wrote: every program in a
bubblewrap sandbox of its own, without network, with a read-only view of the system's folders, an empty scratch folder,
and limits on memory, processes, files and time. Where no sandbox works, the items of these suites are not scored, and
the tables say so and what to do; with --unsafe-code-execution such code then runs unprotected.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness.errors import UserError, one_line_errors
from harness.options import UNSAFE_HELP, UNSAFE_OPTION


def main(line: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run")
    parser.add_argument(UNSAFE_OPTION, action="store_true", help=UNSAFE_HELP)
    asked = parser.parse_args(line)

    from harness.records.store import read_run
    from harness.runs.folder import exclusive
    from harness.sandbox.scoring import accuracies, describe_scoring, score_run

    if read_run(asked.run).items.empty:  # refused before a folder is made where no run is
        raise UserError(f"{asked.run} holds no items yet; there is nothing to score")
    with exclusive(asked.run):
        print(describe_scoring(score_run(asked.run, asked.unsafe_code_execution)))
    print("\n".join(accuracies(read_run(asked.run))))
    return 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
