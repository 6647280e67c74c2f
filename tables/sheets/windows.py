"""The table of speculative windows of a run."""

from __future__ import annotations

from collections.abc import Iterator

from harness.measures.table import measure_windows
from harness.measures.together import of_all
from tables.sheets.captions import setting
from tables.sheets.layout import Heading, Request, Sheet, Table, listed

HEADINGS = {
    "acceptance": Heading("", "Acceptance", 3),
    "alpha": Heading("", "Alpha", 3),
    "committed_per_window": Heading("", "Committed", 2),
    "windows": Heading("", "Windows", 0),
}
CAPTION = (
    "Speculative windows. Acceptance is accepted / proposed drafts, alpha accepted / (accepted + rejected), "
    "Committed the mean number of positions a window resolves."
)


def windows(request: Request) -> Iterator[Sheet]:
    """Speculative windows, where there are any."""
    measured = of_all(measure_windows, request.run)
    if len(measured):
        caption = " ".join([CAPTION, *setting(request.measured, request.run)])
        yield Sheet(Table("windows", caption, listed(measured, HEADINGS, request.run)), measured)
