"""Timing receipts: the state of the machine at the start and at the end of every session of a run.

Seconds say something of a decoder only if the machine was the same throughout: clocks, load, and on a GPU what
throttled it. A session is one stretch of a run, from its start, or --resume, to its end; a killed one has no end.
"""

import os
import time
from datetime import UTC, datetime
from typing import Any

import psutil

SAMPLE = 0.2  # seconds over which the processor's use is taken
BUSY = 20  # percent of all cores, or of the GPU, that others may use before seconds are in doubt


def receipt(device: str) -> dict[str, Any]:
    """The machine now: {at, cpu_mhz, busy_percent, load, available_gib, gpu}.

    busy_percent: use of all cores by other processes over SAMPLE seconds; load: the 1, 5 and 15 minute averages; gpu:
    None but on CUDA devices, there what NVML says, or why it says nothing. What a platform does not tell is None.
    """
    try:
        frequency = psutil.cpu_freq()
    except (OSError, NotImplementedError):
        frequency = None
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu_mhz": round(frequency.current) if frequency else None,
        "busy_percent": _used_by_others(),
        "load": [round(average, 2) for average in os.getloadavg()] if hasattr(os, "getloadavg") else None,
        "available_gib": round(psutil.virtual_memory().available / 2**30, 1),
        "gpu": _gpu(device) if device.startswith("cuda") else None,
    }


def _used_by_others() -> float:
    """Percent of all cores. This process's own part is taken out: its threads may still wait actively."""
    own = psutil.Process()
    before, began = sum(own.cpu_times()[:2]), time.perf_counter()
    used = psutil.cpu_percent(interval=SAMPLE)
    share = (sum(own.cpu_times()[:2]) - before) / (time.perf_counter() - began) / (psutil.cpu_count() or 1)
    return round(max(0.0, used - 100 * share), 1)


def busy_warning(at_start: dict[str, Any]) -> str | None:
    """What to say where the receipt of a run's start shows that others use its device; None if all is quiet."""
    used = {"processor": at_start["busy_percent"], "GPU": (at_start["gpu"] or {}).get("busy_percent")}
    busy = [f"{percent:.0f}% of the {name}" for name, percent in used.items() if percent is not None and percent > BUSY]
    if not busy:
        return None
    return (
        f"warning: other programs use {' and '.join(busy)}: seconds will be longer and less certain, ratios less so; "
        "wait for a quiet machine"
    )


def _gpu(device: str) -> dict[str, Any]:
    """A CUDA device: clocks (MHz), temperature (C), power (W), use (percent), throttle reasons (NVML's bit mask)."""
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            handle = _handle(pynvml, device)
            return {
                "sm_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
                "memory_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
                "temperature_c": pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
                "power_w": round(pynvml.nvmlDeviceGetPowerUsage(handle) / 1000, 1),
                "busy_percent": pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
                "throttle_reasons": hex(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
            }
        finally:
            pynvml.nvmlShutdown()
    except ImportError:
        return {"unknown": "NVML's bindings are not installed: pip install nvidia-ml-py"}
    except pynvml.NVMLError as error:
        return {"unknown": f"NVML: {error}"}


def _handle(pynvml: Any, device: str) -> Any:
    """NVML's handle of a torch device; by its UUID, for NVML does not know of CUDA_VISIBLE_DEVICES."""
    import torch

    identity = str(torch.cuda.get_device_properties(device).uuid)
    return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{identity.removeprefix('GPU-')}")
