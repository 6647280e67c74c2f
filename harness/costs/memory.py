"""Peak memory of passes, above the weights and whatever else is there before: bytes that torch's allocator handed out.

On a GPU that is torch.cuda.max_memory_allocated. On a CPU it is the highest sum of allocations and releases that
torch's profiler sees during the call. That is exact and repeatable; the resident size of a process also depends on what
its allocator keeps. Scratch space that a library (oneDNN) allocates without torch is not counted.
"""

import json
import math
import os
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from pathlib import Path

import pandas as pd
import torch
from torch.profiler import ProfilerActivity, profile

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
    """The most bytes that were allocated at once during a call, above what was before; it is called twice."""
    call()  # the first call also allocates what libraries keep
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or the profiler reports its start and stop
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    # Only the trace has single allocations in their order; summaries have sums by operator.
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    changes = sorted((event for event in events if event.get("name") == "[memory]"), key=lambda event: event["ts"])
    return max(accumulate(event["args"]["Bytes"] for event in changes), default=0)
