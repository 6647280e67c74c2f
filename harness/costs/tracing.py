"""What a trace costs while a response is decoded: every commit, re-mask and rejected draft noted, beside none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
import torch
from scipy import stats

from harness.costs.decoders import bench_ways
from harness.costs.timing import interleaved
from harness.methods.presets import Preset
from model_wrappers import Backbone, decode
from model_wrappers.events import EventLog


def bench_tracing(
    backbone: Backbone, prompts: list[torch.Tensor], response: int, repeats: int, presets: dict[str, Preset]
) -> pd.DataFrame:
    """Milliseconds of a response with and without a trace, how many events it has, and what the trace adds in percent.

    prompts: LongTensors (P,). presets: by name. The percentage is the median, over prompts and rounds, of the ratio of
    two responses made one after the other, with its 95% bootstrap interval.
    """
    rows = []
    for name, way in bench_ways(response, presets).items():
        events, measured = 0, []
        for prompt_P in prompts:
            plain = partial(decode, backbone, prompt_P, **way)
            log = EventLog()
            calls: dict[str, Callable[[], object]] = {"plain": plain, "traced": partial(plain, observer=log)}
            measured.append(interleaved(calls, backbone.device, repeats))
            events += len(log)  # of the last response alone
        seconds = pd.concat(measured)
        added = 100 * (seconds["traced"] / seconds["plain"] - 1).to_numpy()
        interval = stats.bootstrap((added,), np.median, rng=np.random.default_rng(0)).confidence_interval
        rows.append(
            {
                "method": name,
                "events": events / len(prompts),
                "plain, ms": 1e3 * seconds["plain"].median(),
                "traced, ms": 1e3 * seconds["traced"].median(),
                "added, %": np.median(added),
                "low": interval.low,
                "high": interval.high,
            }
        )
    return pd.DataFrame(rows)
