"""The tables of speculative windows, and of theory beside measurement: what Theorem 2 and its corollary predict, and by
how much they miss."""

from collections.abc import Iterator

import pandas as pd

from harness.measures.table import measure_windows, timed
from harness.measures.theory import COSTS, OF_SECONDS, theory
from harness.records.store import Run
from tables.sheets.captions import setting, timing
from tables.sheets.layout import Heading, Request, Sheet, Table, listed

WINDOWS = {
    "acceptance": Heading("", "Acceptance", 3),
    "alpha": Heading("", "Alpha", 3),
    "committed_per_window": Heading("", "Committed", 2),
    "windows": Heading("", "Windows", 0),
}
OF_WINDOWS = (
    "Speculative windows. Acceptance is accepted / proposed drafts, alpha accepted / (accepted + rejected), "
    "Committed the mean number of positions a window resolves."
)
CAPTION = (
    "Theory beside measurement. Alpha is accepted / (accepted + rejected) drafts, Acceptance accepted / proposed.",
    "E[C_k] is what Theorem 2 expects a window of k drafts to commit at that alpha, the corrected position counted; "
    "E[C_b] is its mean over the lengths that the windows had; Committed is measured.",
    "Passes: positions committed per position that LLaDA decodes.",
)
CAPTION_TIMED = (
    "c, c_rho and c_pi: milliseconds of a plain forward, a draft pass and a verification of k drafts, measured beside "
    "the items, medians.",
    "Over w/o SD: the corollary predicts S = E[C_k] c_pi / (c_rho + c_pi).",
)
CAPTION_FORWARDS = "Over LLaDA: forward passes (Fwd.) are predicted as E[C_k] / 2 / passes."
CAPTION_SPEED = "Wall-clock (Speed) is predicted as E[C_k] c / (c_rho + c_pi) / passes."
CAPTION_END = (
    "Ratio is measured / predicted.",
    "Predictions miss because acceptance is not independent over the positions of a window; because windows at the end "
    "of a response, and adaptive ones, are shorter than k; because savings leave out draft passes and rows; because "
    "the corollary prices a sequential pass like a verification of k rows; and because context passes of two-stream "
    "verification and the decoders' own work are no part of them.",
)
HEADINGS = {
    "window": Heading("", "k", 0),
    "alpha": Heading("", "Alpha", 3),
    "acceptance": Heading("", "Acceptance", 3),
    "committed_per_window": Heading("", "Committed", 2),
    "expected_committed": Heading("", "E[C_k]", 2),
    "expected_committed_windows": Heading("", "E[C_b]", 2),
    "passes": Heading("", "Passes", 2),
    "c": Heading("", "c", 2),
    "c_rho": Heading("", "c_rho", 2),
    "c_pi": Heading("", "c_pi", 2),
    "predicted_over_sequential": Heading("Over w/o SD", "predicted", 2, "x"),
    "over_sequential": Heading("Over w/o SD", "measured", 2, "x"),
    "over_sequential_ratio": Heading("Over w/o SD", "ratio", 2),
    "predicted_forward_speedup": Heading("Fwd.", "predicted", 2, "x"),
    "forward_speedup": Heading("Fwd.", "measured", 2, "x"),
    "forward_speedup_ratio": Heading("Fwd.", "ratio", 2),
    "predicted_speedup": Heading("Speed", "predicted", 2, "x"),
    "speedup": Heading("Speed", "measured", 2, "x"),
    "speedup_ratio": Heading("Speed", "ratio", 2),
}


def windows(request: Request) -> Iterator[Sheet]:
    """Speculative windows, where there are any."""
    measured = measure_windows(request.run)
    if len(measured):
        caption = " ".join([OF_WINDOWS, *setting(request.measured, request.run)])
        yield Sheet(Table("windows", caption, listed(measured, WINDOWS, request.run)), measured)


def theory_table(frame: pd.DataFrame, measured: pd.DataFrame, run: Run) -> Table:
    """The frame of `theory` as a table, without OF_SECONDS if not timed; `measured` of `table.measure`."""
    of_seconds = timed(run)
    shown = {name: how for name, how in HEADINGS.items() if of_seconds or name not in OF_SECONDS}
    cells = listed(frame.assign(**{name: 1e3 * frame[name] for name in COSTS}), shown, run)  # in milliseconds
    sentences = [*CAPTION, *(CAPTION_TIMED if of_seconds else ()), CAPTION_FORWARDS]
    sentences += [*([CAPTION_SPEED] if of_seconds else []), *CAPTION_END]
    return Table("theory", " ".join([*sentences, *setting(measured, run), *timing(run)]), cells)


def theory_sheets(request: Request) -> Iterator[Sheet]:
    """The paper's theorem beside the measured windows, if FeF methods have any."""
    expected = theory(request.run)

    if len(expected):
        yield Sheet(theory_table(expected, request.measured, request.run), expected)
