"""Score a finished run again, with OpenCompass's evaluators.

    python harness/scoring.py results/runs/NAME

Verdicts of all methods and suites are made anew. HumanEval and MBPP execute code that a model wrote: every program in a
bubblewrap sandbox of its own, without network, with a read-only view of the system's folders, an empty scratch folder,
and limits on memory, processes, files and time. Where no sandbox works, the items of these suites are not scored, and
the tables say so and what to do; with --unsafe-code-execution such code then runs unprotected.

A run may name files of code, plugins with its suites and judges of its questions. They are run with --trust-plugins
alone: look at them first.
"""

import argparse
import sys
from pathlib import Path

from harness.errors import UserError, one_line_errors
from harness.options import UNSAFE_HELP, UNSAFE_OPTION
from harness.records.schema import RunRecord


def main(line: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run")
    parser.add_argument(UNSAFE_OPTION, action="store_true", help=UNSAFE_HELP)
    parser.add_argument("--trust-plugins", action="store_true", help="run the files of code that the run names")
    asked = parser.parse_args(line)

    from harness.records.store import read_run
    from harness.runs.folder import exclusive
    from harness.sandbox.scoring import accuracies, describe_scoring, score_run

    run = read_run(asked.run)
    if run.items.empty:  # refused before a folder is made where no run is
        raise UserError(f"{asked.run} holds no items yet; there is nothing to score")
    if (files := code_of(run.meta)) and not asked.trust_plugins:
        raise UserError(f"{asked.run} would be judged by code that it names: {', '.join(files)}; add --trust-plugins")
    with exclusive(asked.run):
        print(describe_scoring(score_run(asked.run, asked.unsafe_code_execution)))
    print("\n".join(accuracies(read_run(asked.run))))
    return 0


def code_of(meta: RunRecord) -> list[str]:
    """The files of code, outside this repository, that scoring a run executes: those of its suites and judges."""
    plugins = [each.path for each in meta.plugins if each.registered.get("suites")]
    judges = [str(each.get("judge")) for each in (meta.data.get("paths") or {}).values()]
    return [*plugins, *(judge.rpartition(":")[0] for judge in judges if ".py:" in judge)]


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
