"""What the windows of a trace sum to."""

import numpy as np

from harness.records.files import REFUSED, Numbers, TraceRecord
from model_wrappers.trace import NO_WINDOW, NUMBER

ACCEPTED = (NUMBER["accepted"], NUMBER["known"])
COMMITS = (*ACCEPTED, *(NUMBER[kind] for kind in ("unmasked", "corrected", "drawn", "filled")))


def window_sums(record: TraceRecord) -> dict[str, Numbers]:
    """proposed, accepted and committed of every window, (windows,), counted from the events."""
    kinds, windows = record.column("kind"), record.column("window")
    count = int(windows.max()) + 1 if len(windows) else 0

    def counted(*wanted: int) -> Numbers:
        return np.bincount(
            windows[np.isin(kinds, wanted) & (windows != NO_WINDOW)], minlength=count
        )

    return {
        "proposed": counted(*ACCEPTED, *REFUSED),
        "accepted": counted(*ACCEPTED),
        "committed": counted(*COMMITS),
    }
