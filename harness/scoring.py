"""Score a finished run again, with OpenCompass's evaluators, and make its tables and report again.

    python harness/scoring.py results/runs/NAME

HumanEval and MBPP execute code that a model wrote: each program in a process of its own that
Landlock and seccomp, or bubblewrap, keep from files, processes and the network, with limits on
memory and time. Where neither works, their items are not scored, and the tables say so;
--unsafe-code-execution runs such code unprotected.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError, one_line_errors
from harness.options import UNSAFE_HELP, option, parsed


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """Which run is scored, and how."""

    run: Path = option("folder of a run", positional=True)
    unsafe_code_execution: bool = option(UNSAFE_HELP, False)


def main(line: list[str] | None = None) -> int:
    """The command line."""
    options = parsed(ScoringOptions, line, __doc__)

    from harness.records.store import read_run
    from harness.runs.folder import exclusive
    from harness.runs.follow import follow
    from harness.sandbox.scoring import describe_scoring, score_run

    run = read_run(options.run)
    if run.items.empty:
        raise UserError(f"{options.run} holds no items yet; there is nothing to score")
    with exclusive(options.run):
        print(describe_scoring(score_run(options.run, options.unsafe_code_execution)))
    # Tables and report show verdicts, so both are made again as they were made before.
    render_options = options_of_tables(options.run / "tables", list(run.config.methods))
    follow("render", options.run, *render_options)
    if (options.run / "report" / "index.html").exists():
        follow("report", options.run)
    return 0


def options_of_tables(folder: Path, methods: list[str]) -> list[str]:
    """The options of tables/render.py that a folder of tables was made with, judging by its files.

    Args:
        folder: of tables; it need not exist.
        methods: of the run.
    """
    import pandas as pd

    files = {"--paper": "paper.md", "--measures": "measures.md", "--pdf": "tables.pdf"}
    options = [option for option, name in files.items() if (folder / name).exists()]
    against = folder / "against.csv"
    if against.exists():
        compared = set(pd.read_csv(against)["method"])
        # The method that all others are compared with has no row.
        references = [method for method in methods if method not in compared]
        options += ["--against", *references[:1]]
    main = folder / "main.csv"
    if main.exists() and "accuracy_low" in pd.read_csv(main, nrows=0):
        options.append("--intervals")
    return options


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
