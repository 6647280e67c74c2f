"""Write the report of one run or of several: a page to be opened in a browser, without a server or
a network.

    python tables/report.py results/runs/NAME
    python tables/report.py results/runs/A results/runs/B --out FOLDER

Writes index.html with its data beside it to --out (default: RUN_FOLDER/report, of the first run).
It has the main table and figures, every item with its prompt, reference and verdict, the responses
of several methods side by side, of a run with traces (harness/run.py --trace) their decoding
forward by forward, two methods or runs compared, and run cards. The folder may be put on any web
host. What a model wrote is shown as text and never as markup.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from harness.errors import one_line_errors
from harness.options import option, parsed


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Which runs the report shows, and where it goes."""

    runs: tuple[Path, ...] = option(
        "folders with run.json and items.jsonl",
        (),
        positional=True,
        nargs="+",
        metavar="RUN_FOLDER",
    )
    out: Path | None = option("where the report goes", metavar="FOLDER")


def main(line: list[str] | None = None) -> int:
    """The command line; 0 when the report is written."""
    options = parsed(ReportOptions, line, __doc__)
    # pandas and plotly take a second to import, which --help need not wait for.
    from harness.records.store import read_run
    from tables.pages import write_site
    from tables.pages.data import open_book

    out = options.out or options.runs[0] / "report"
    missing = write_site(open_book([read_run(folder) for folder in options.runs]), out)
    if missing > 0:
        print(
            f"{missing} responses of traced runs have no trace: traces.bin is not there, or was cut"
        )
    print(f"report: {out / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
