"""What a trace costs while a response is decoded: every commit, re-mask and rejected draft noted, beside none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pandas as pd
import torch

from harness.costs.timing import interleaved
from harness.methods.presets import Preset
from model_wrappers import Backbone, decode
from model_wrappers.events import EventLog


def bench_tracing(
    backbone: Backbone, prompts: list[torch.Tensor], response: int, repeats: int, presets: dict[str, Preset]
) -> pd.DataFrame:
    """Milliseconds of a response with and without a trace, means over the prompts, and how many events it has.

    prompts: LongTensors (P,). presets: by name. The percentage is the median over the rounds of the two's ratio.
    """
    calls: dict[str, Callable[[], object]] = {}
    events = {}
    for name, preset in presets.items():
        setting = preset.for_suite("bench", {"gen_length": response}, {})
        options = {option: value for option, value in setting.options.items() if option != "baseline"}
        lengths = {"gen_length": setting.gen_length, "block_length": setting.block_length}
        run = partial(_decode_all, backbone, prompts, {"method": preset.method, **options, **lengths})
        events[name] = run(True)
        calls |= {f"{name} plain": partial(run, False), f"{name} traced": partial(run, True)}
    seconds = interleaved(calls, backbone.device, repeats)
    rows = []
    for name in presets:
        plain, traced = seconds[f"{name} plain"], seconds[f"{name} traced"]
        rows.append(
            {
                "method": name,
                "events": events[name] / len(prompts),
                "plain, ms": 1e3 * plain.median() / len(prompts),
                "traced, ms": 1e3 * traced.median() / len(prompts),
                "tracing, %": 100 * ((traced / plain).median() - 1),
            }
        )
    return pd.DataFrame(rows)


def _decode_all(backbone: Backbone, prompts: list[torch.Tensor], options: dict[str, object], traced: bool) -> int:
    """Decode all prompts; how many events there were."""
    events = 0
    for prompt_P in prompts:
        log = EventLog() if traced else None
        decode(backbone, prompt_P, observer=log, **options)  # type: ignore[arg-type]
        events += 0 if log is None else len(log)
    return events
