"""Timing receipts: what the machine was like, and what a GPU says of itself through NVML."""

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from harness.records import environment as receipts
from harness.records.environment import receipt


class NvmlError(Exception):
    """Of NVML."""


def nvml_of(asked: list[str], broken: bool = False) -> SimpleNamespace:
    """NVML with one throttled GPU; `asked` gets the identities that it is asked for."""

    def begin() -> None:
        if broken:
            raise NvmlError("Driver Not Loaded")

    return SimpleNamespace(
        **{
            "NVMLError": NvmlError,
            "NVML_CLOCK_SM": 1,
            "NVML_CLOCK_MEM": 2,
            "NVML_TEMPERATURE_GPU": 0,
        },
        nvmlInit=begin,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByUUID=asked.append,
        nvmlDeviceGetClockInfo=lambda handle, clock: {1: 1980, 2: 2619}[clock],
        nvmlDeviceGetTemperature=lambda handle, sensor: 61,
        nvmlDeviceGetPowerUsage=lambda handle: 512_340,
        nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=7),
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 0x4,
    )


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="abc")
    )


def test_what_this_process_uses_itself_is_not_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    def spin(interval: float, percpu: bool) -> list[float]:
        began, end = time.perf_counter(), time.process_time() + interval
        while time.process_time() < end:
            pass
        cores = psutil.cpu_count() or 1
        return [100 * interval / (time.perf_counter() - began) / cores] * cores

    monkeypatch.setattr(receipts.psutil, "cpu_percent", spin)
    assert receipts.receipt("cpu")["busy_percent"] < 5


@pytest.mark.parametrize(
    ("processor", "gpu", "says"),
    [
        (None, None, None),
        (64.4, None, "64% of the processor"),
        (3.0, {"busy_percent": 90}, "90% of the GPU"),
        (50.0, {"busy_percent": 90}, "50% of the processor and 90% of the GPU"),
        (3.0, {"unknown": "NVML"}, None),
    ],
)
def test_a_busy_start_is_warned_of(
    processor: float | None, gpu: dict[str, Any] | None, says: str | None
) -> None:
    warning = receipts.busy_warning({"busy_percent": processor, "gpu": gpu})
    assert (
        warning is None
        if says is None
        else warning is not None and f"other programs use {says}:" in warning
    )


def test_a_gpu_is_asked_by_its_own_identity(monkeypatch: pytest.MonkeyPatch, one_gpu: None) -> None:
    asked: list[str] = []
    monkeypatch.setitem(sys.modules, "pynvml", nvml_of(asked))
    gpu = receipt("cuda:1")["gpu"]
    assert asked == ["GPU-abc"]
    assert gpu["sm_mhz"] == 1980 and gpu["power_w"] == 512.3 and gpu["throttle_reasons"] == "0x4"


def test_only_code_makes_a_record_dirty(tmp_path: Path) -> None:
    """OpenCompass leaves a folder .cache where it was started."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    for name in (".cache", "harness"):
        assert receipts._changes(tmp_path.resolve()) == ""
        (tmp_path / name).mkdir()
        (tmp_path / name / "file.py").touch()
    assert receipts._changes(tmp_path.resolve()) == "?? harness/"
