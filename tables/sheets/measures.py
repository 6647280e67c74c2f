"""The tables of tokens, calls and seconds by every definition, of speculative windows, and of
Theorem 2 with them.

Papers define tokens per forward and per second in different ways; a run's record has all of them.
None shows which method is faster: a method that pads or writes more has more tokens. Seconds per
response show it.
"""

from collections.abc import Iterator

import pandas as pd

from harness.measures.marks import with_marks
from harness.measures.parallelism import curves, token_ledger
from harness.measures.samples import sampled
from harness.measures.table import (
    ENDS_OF_TEXT,
    PAIR,
    measure_windows,
    method_labels,
    suite_titles,
    timed,
)
from harness.measures.theory import OF_SECONDS, theory
from tables.sheets import COLUMNS, TableRequest
from tables.table import Table, listed_rows


def _listed(request: TableRequest, name: str, caption: str, frame: pd.DataFrame) -> Iterator[Table]:
    """A table with a row for each row of a frame, labelled by series or method; none if it is
    empty."""
    if frame.empty:
        return
    run = request.run
    # An untimed run still has the theorem's predictions of tokens, but not those of seconds.
    seconds = timed(run) or name != "theory"
    columns = [
        column
        for column in COLUMNS[name]
        if column.name in frame and (seconds or column.name not in OF_SECONDS)
    ]
    labels = frame["series"] if "series" in frame else frame["method"].map(method_labels(run))
    titled = frame.assign(suite=frame["suite"].map(suite_titles(run)))
    yield request.table(name, caption, columns, listed_rows(titled, columns, labels), frame)


def measures(request: TableRequest) -> Iterator[Table]:
    """If measures are wanted: tokens, calls and seconds of a response, and the field's measures
    made of these."""
    if not request.measures:
        return
    ledger = token_ledger(request.run)
    caption = "Tokens per forward and per second, by what is called a token (docs/measuring.md)."
    yield from _listed(request, "measures", caption, ledger)
    yield from _listed(request, "tokens", "Seconds, tokens and calls of a response.", ledger)
    caption = "Accuracy under parallelism (AUP) of decoders at several settings."
    yield from _listed(request, "curves", caption, curves(request.run))


def responses(request: TableRequest) -> Iterator[Table]:
    """How responses end, if measures are wanted or problems have several samples; then also how
    many problems these solve (pass@k)."""
    draws = len(request.run.config.draws)
    if not request.measures and draws == 1:
        return
    names = [*PAIR, "scored", "accuracy", "accuracy_marks", *ENDS_OF_TEXT]
    frame = with_marks(request.measured, request.run)[names]
    if draws > 1:
        frame = frame.merge(sampled(request.run, {"1": 1, "4": 4, "n": draws}), on=PAIR)
    caption = "How responses end, and what samples of a problem solve together (docs/measuring.md)."
    yield from _listed(request, "responses", caption, frame)


def windows(request: TableRequest) -> Iterator[Table]:
    """The table of speculative windows, if the run has any."""
    frame = measure_windows(request.run)
    yield from _listed(request, "windows", "Speculative windows (docs/measuring.md).", frame)


def theory_tables(request: TableRequest) -> Iterator[Table]:
    """The paper's Theorem 2 against the measured windows, if FeF methods have any; the columns
    OF_SECONDS only of a timed run."""
    caption = "What Theorem 2 and its corollary predict, and what was measured (docs/measuring.md)."
    yield from _listed(request, "theory", caption, theory(request.run))
