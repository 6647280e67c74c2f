"""The tables of tokens, calls and seconds by every definition, of speculative windows, and of
Theorem 2 with them.

Papers define tokens per forward and per second in different ways; a run's record has all of them.
None shows which method is faster: a method that pads or writes more has more tokens. Seconds per
response show it.
"""

from collections.abc import Iterator

import pandas as pd

from harness.measures.captions import setting, timing
from harness.measures.parallelism import curves, token_ledger
from harness.measures.table import measure_windows, other_tokenizers, timed
from harness.measures.theory import COSTS, OF_SECONDS, theory
from tables.sheets import Heading, Headings, Sheet, Table, TableRequest, listed

COUNTS: Headings = {
    "seconds_per_item": Heading("Seconds", "mean", 3),
    "seconds_median": Heading("Seconds", "median", 3),
    "seconds_90": Heading("Seconds", "90%", 3),
    "seconds_99": Heading("Seconds", "99%", 3),
    "first_block_seconds": Heading("Seconds until", "first block", 3),
    "content_seconds": Heading("Seconds until", "last content", 3),
    "prompt_tokens": Heading("Tokens", "Prompt", 1),
    "content_tokens": Heading("Tokens", "Content", 1),
    "eos_tokens": Heading("Tokens", "EOS", 1),
    "post_stop_tokens": Heading("Tokens", "Post-stop", 1),
    "forwards": Heading("Model", "Calls", 1),
    "token_forwards": Heading("Model", "Tokens", 1),
    "cached_tokens": Heading("Model", "Cached", 1),
}
MEASURES: Headings = {
    "tpf_content": Heading("Tokens/forward", "content", 2),
    "tpf_content_mean": Heading("Tokens/forward", "content, mean", 2),
    "tpf_written": Heading("Tokens/forward", "without EOS", 2),
    "tpf_generated": Heading("Tokens/forward", "generation length", 2),
    "positions_per_token": Heading("", "Positions a token", 1),
    "committed_per_window": Heading("", "Committed a window", 2),
    "tps_content": Heading("Tokens/s", "content", 1),
    "tps_content_mean": Heading("Tokens/s", "content, mean", 1),
    "tps_written": Heading("Tokens/s", "without EOS", 1),
    "tps_generated": Heading("Tokens/s", "generation length", 1),
    "tps_seen": Heading("Tokens/s", "with prompt", 1),
}
OF_COUNTS = "Seconds, tokens and calls of a response."
OF_MEASURES = "Tokens per forward and per second, by what is called a token (docs/measuring.md)."
OTHER_TOKENS = "A model with another tokenizer has none of them (-): its tokens are others."
CURVES: Headings = {
    "points": Heading("", "Settings", 0),
    "aup": Heading("AUP", "d3LLM", 1),
    "area": Heading("AUP", "beside LLaDA", 1),
    "area_low": Heading("95%", "low", 1),
    "area_high": Heading("95%", "high", 1),
}
OF_CURVES = "Accuracy under parallelism (AUP) of decoders at several settings (docs/measuring.md)."


def measures(request: TableRequest) -> Iterator[Sheet]:
    """What a response has of tokens, calls and seconds, and the field's measures of it, if they are
    wanted."""
    if not request.measures:
        return
    run = request.run
    ledger = token_ledger(request.run)
    of_responses = (
        ("measures", MEASURES, OF_MEASURES, ledger),
        ("tokens", COUNTS, OF_COUNTS, ledger),
    )
    for name, headings, meaning, frame in (
        *of_responses,
        ("curves", CURVES, OF_CURVES, curves(run)),
    ):
        if len(frame):
            own = [OTHER_TOKENS] if name == "measures" and other_tokenizers(run) else []
            sentences = [meaning, *own, *setting(request.measured, run, timing(run))]
            yield Sheet(Table(name, sentences, listed(frame, headings, run)), frame)


WINDOWS = {
    "acceptance": Heading("", "Acceptance", 2),
    "alpha": Heading("", "Alpha", 3),
    "committed_per_window": Heading("", "Committed", 2),
    "windows": Heading("", "Windows", 0),
}
OF_WINDOWS = "Speculative windows (docs/measuring.md)."
OF_THEORY = (
    "What Theorem 2 and its corollary predict, beside what was measured (docs/measuring.md)."
)
HEADINGS = {
    "window": Heading("", "k", 0),
    "alpha": Heading("", "Alpha", 3),
    "acceptance": Heading("", "Acceptance", 2),
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


def _as_printed(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with acceptance in percent."""
    return frame.assign(acceptance=100 * frame["acceptance"])


def windows(request: TableRequest) -> Iterator[Sheet]:
    """Speculative windows, where there are any."""
    measured = measure_windows(request.run)
    if len(measured):
        sentences = [OF_WINDOWS, *setting(request.measured, request.run)]
        cells = listed(_as_printed(measured), WINDOWS, request.run)
        yield Sheet(Table("windows", sentences, cells), measured)


def theory_sheets(request: TableRequest) -> Iterator[Sheet]:
    """The paper's theorem and the measured windows, if FeF methods have any; OF_SECONDS only of a
    timed run."""
    run = request.run
    expected = theory(request.run)
    if expected.empty:
        return
    of_seconds = timed(run)
    shown = {name: how for name, how in HEADINGS.items() if of_seconds or name not in OF_SECONDS}
    milliseconds = {name: 1e3 * expected[name] for name in COSTS}
    cells = listed(_as_printed(expected).assign(**milliseconds), shown, run)
    sentences = [OF_THEORY, *setting(request.measured, run, timing(run))]
    yield Sheet(Table("theory", sentences, cells), expected)
