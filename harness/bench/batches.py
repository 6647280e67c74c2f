"""Responses a second and seconds a response against how many are decoded at once."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pandas as pd
import psutil
import torch

from harness.bench.decoders import dev_prompts, options_of
from harness.methods.presets import Preset
from harness.stats import median_ratio
from harness.timing import interleaved
from model_wrappers import Backbone, decode
from model_wrappers.batches import at_once, in_batch
from model_wrappers.chat import content_length

SIZES = (1, 2, 4, 8, 16, 32, 64)
SHARES = {"median": 0.5, "90%": 0.9, "99%": 0.99}


class Finished(NamedTuple):
    """A response: seconds from its beginning to its end, and tokens of its content, up to EOS."""

    seconds: float
    tokens: int


def bench_throughput(
    backbone: Backbone, suites: list[str], limit: int, repeats: int, presets: dict[str, Preset]
) -> pd.DataFrame:
    """A row for each suite, method and batch size: medians over rounds, in which all take the same problems in turn.

    limit: dev problems of each suite; no batch is larger. Columns: responses and content tokens a second, the former
    over that at batch 1, percentiles of a response's seconds from its beginning to its end, in the last round, and GB,
    the most memory: allocated on a GPU, of the process on a CPU.
    """
    rows = []
    sizes = [size for size in SIZES if size <= limit]
    for suite in suites:
        prompts = dev_prompts(backbone, suite, limit)
        measured = {
            (name, size): _Batch(
                backbone, size, [partial(decode, prompt_ids=prompt_P, **options) for prompt_P in prompts]
            )
            for size in sizes
            for name, options in options_of(backbone, suite, presets).items()
        }
        calls: dict[Any, Callable[[], object]] = dict(measured)
        seconds = interleaved(calls, backbone.device, repeats)
        for (name, size), batch in measured.items():
            responses = pd.DataFrame(batch.finished)
            a_second = (limit / seconds[name, size]).median()
            rows.append(
                {
                    "suite": suite,
                    "method": name,
                    "batch": size,
                    "responses/s": a_second,
                    "tokens/s": a_second * responses["tokens"].mean(),
                    "over batch 1": median_ratio(seconds[name, 1], seconds[name, size]),
                    **{f"s, {text}": responses["seconds"].quantile(share) for text, share in SHARES.items()},
                    "GB": batch.memory,
                }
            )
    return pd.DataFrame(rows).sort_values(["suite", "method", "batch"], kind="stable")


class _Batch:
    """All responses of a method, `size` at once. finished, memory: of the last time."""

    def __init__(self, backbone: Backbone, size: int, responses: list[Callable[[Backbone], Any]]) -> None:
        self._backbone, self._size, self._responses = backbone, size, responses
        self.finished: list[Finished] = []
        self.memory = 0.0

    def __call__(self) -> None:
        on_gpu = self._backbone.device.type == "cuda"
        if on_gpu:
            torch.cuda.reset_peak_memory_stats(self._backbone.device)
        jobs = [partial(self._response, each) for each in self._responses]
        self.finished = [job() for job in jobs] if self._size == 1 else list(at_once(jobs, self._size))
        most = torch.cuda.max_memory_allocated(self._backbone.device) if on_gpu else psutil.Process().memory_info().rss
        self.memory = most / 1e9

    def _response(self, response: Callable[[Backbone], Any]) -> Finished:
        began = time.perf_counter()
        out = response(self._backbone if self._size == 1 else in_batch(self._backbone))
        return Finished(time.perf_counter() - began, content_length(self._backbone, out.tokens))
