"""Seconds of calls, measured so that they can be compared: the device synchronised, the calls interleaved."""

import time
from collections.abc import Callable

import pandas as pd
import psutil
import torch

DISCARDED = 2


def seconds_of(call: Callable[[], object], device: torch.device) -> float:
    """Wall-clock seconds of one call, the device synchronised on both sides."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda _: None
    wait(device)
    began = time.perf_counter()
    call()
    wait(device)
    return time.perf_counter() - began


def interleaved(calls: dict[str, Callable[[], object]], device: torch.device, repeats: int) -> pd.DataFrame:
    """Seconds of each call, a column per call, in rounds that drift hits alike; the first DISCARDED rounds warm up."""
    rounds = [{name: seconds_of(call, device) for name, call in calls.items()} for _ in range(repeats + DISCARDED)]
    return pd.DataFrame(rounds[DISCARDED:])


def free_bytes(device: torch.device) -> int:
    """Memory that can still be allocated on a device, in bytes."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return int(psutil.virtual_memory().available)
