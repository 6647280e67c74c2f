"""The table of speculative windows of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from harness.measures.table import WINDOW_MEASURES, measure_windows, method_labels, suite_titles
from harness.measures.together import of_all
from harness.records.store import Run
from tables.sheets.captions import setting
from tables.sheets.layout import Cell, Request, Sheet, Table, number_text


def windows_table(windows: pd.DataFrame, measured: pd.DataFrame, run: Run) -> Table:
    """Speculative windows, one row per method and suite, from `measures.measure_windows`."""
    titles = suite_titles(run)
    rows = [
        [
            Cell(titles[row["suite"]]),
            *(Cell(number_text(row[name], 3)) for name in WINDOW_MEASURES[2:4]),
            Cell(number_text(row["committed_per_window"], 2)),
            Cell(str(row["windows"])),
        ]
        for row in windows.to_dict("records")
    ]
    headings = ["Suite", "Acceptance", "Alpha", "Committed", "Windows"]
    cells = pd.DataFrame(
        rows,
        index=windows["method"].map(method_labels(run)).to_list(),
        columns=pd.MultiIndex.from_tuples([("", heading) for heading in headings]),
        dtype=object,
    )
    caption = (
        "Speculative windows. Acceptance is accepted / proposed drafts, alpha accepted / (accepted + rejected), "
        "Committed the mean number of positions a window resolves."
    )
    return Table("windows", " ".join([caption, *setting(measured, run)]), cells)


def windows(request: Request) -> Iterator[Sheet]:
    """Speculative windows, where there are any."""
    measured = of_all(measure_windows, request.run)
    if len(measured):
        yield Sheet(windows_table(measured, request.measured, request.run), measured)
