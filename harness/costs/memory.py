"""Peak memory of passes on a GPU, above the weights and whatever else was there before: what torch allocated."""

import math
from collections.abc import Callable
from functools import partial

import pandas as pd
import torch

from harness.costs.passes import DRAFTS, Passes
from model_wrappers import Backbone

WINDOWS = (DRAFTS, 64)


def bench_memory(backbone: Backbone, prompt: int, response: int) -> pd.DataFrame:
    """Peak memory of a plain forward, of literal and of two-stream verification; the latter with its context pass.

    A row per pass: megabytes (1e6 bytes) above what was there before, their ratio to a plain forward's, and that ratio
    with the weights counted on both sides; NaN for a pass that does not fit into the GPU's memory. Keys and values of
    the context are part of two-stream verification. Windows beyond the sequence are left out. Raises UserError as
    Passes does.
    """
    passes = Passes(backbone, prompt, response)
    calls: dict[str, Callable[[], object]] = {
        "plain forward": passes.plain,
        f"literal verification, {DRAFTS} rows": partial(passes.literal, DRAFTS),
    }
    for window in WINDOWS:
        if window <= passes.length:
            calls[f"two-stream verification, window {window}"] = partial(_both_passes, passes, window)
    peaks = pd.Series({name: _peak_if_it_fits(call, backbone.device) for name, call in calls.items()})
    weights = sum(weight.nbytes for weight in backbone.model.parameters())
    return pd.DataFrame(
        {
            "pass": list(calls),
            "MB": (peaks / 1e6).to_list(),
            "plain forwards": (peaks / peaks["plain forward"]).to_list(),
            "with weights": ((peaks + weights) / (peaks["plain forward"] + weights)).to_list(),
        }
    )


def _both_passes(passes: Passes, window: int) -> None:
    stream = passes.two_stream(window)
    stream.context()
    stream.verify()


def _peak_if_it_fits(call: Callable[[], object], device: torch.device) -> float:
    try:
        return peak_bytes(call, device)
    except torch.OutOfMemoryError:
        return math.nan


def peak_bytes(call: Callable[[], object], device: torch.device) -> int:
    """The most bytes that a GPU held at once during a call, above what was before; the call is made twice."""
    call()  # the first call also allocates what libraries keep
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before
