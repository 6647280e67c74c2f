"""Score a finished run again, with OpenCompass's evaluators.

    python harness/scoring.py results/runs/NAME

HumanEval and MBPP execute code that a model wrote, every program in its own bubblewrap sandbox: no network, a read-only
view of the system's folders, an empty scratch folder, and limits on memory, processes, files and time. Where no sandbox
works, their items are not scored, and the tables say so; --unsafe-code-execution runs such code unprotected. Files of
code that a run names (plugins with its suites, judges) are run with --trust-plugins alone: look at them first.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError, one_line_errors
from harness.options import UNSAFE_HELP, option, parsed


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """Which run is scored, and what may be executed for that."""

    run: Path = option("folder of a run", nargs=None)
    unsafe_code_execution: bool = option(UNSAFE_HELP, False)
    trust_plugins: bool = option("run the files of code that the run names", False)


def main(line: list[str] | None = None) -> int:
    """The command line."""
    options = parsed(ScoringOptions, line, __doc__)

    from harness.measures.table import measure, suite_titles
    from harness.records.store import read_run
    from harness.runs.folder import exclusive
    from harness.sandbox.scoring import describe_scoring, score_run

    run = read_run(options.run)
    # Code from outside this repository that scoring executes: of the run's suites and judges.
    files = [each.path for each in run.meta.plugins if each.registered.get("suites")]
    judges = [str(each.get("judge")) for each in (run.meta.data.get("paths") or {}).values()]
    files += [judge.rpartition(":")[0] for judge in judges if ".py:" in judge]
    wrong = f"would be judged by code that it names: {', '.join(files)}; add --trust-plugins" if files else ""
    wrong = "holds no items yet; there is nothing to score" if run.items.empty else wrong * (not options.trust_plugins)
    if wrong:  # before a folder is made where no run is
        raise UserError(f"{options.run} {wrong}")
    with exclusive(options.run):
        print(describe_scoring(score_run(options.run, options.unsafe_code_execution)))
    titles = suite_titles(run)
    for row in measure(read_run(options.run)).to_dict("records"):
        accuracy = f"{row['accuracy']:6.2f}% of {row['scored']}" if row["scored"] else "not scored"
        print(f"{row['method']:12} {titles[row['suite']]:10} {accuracy}")
    return 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
