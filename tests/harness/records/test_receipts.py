"""Timing receipts: what the machine was like, and what a GPU says of itself through NVML."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.records.receipts import receipt


class FakeNvml(SimpleNamespace):
    """NVML with one throttled GPU."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, broken: bool = False) -> None:
        self.broken = broken
        self.asked: list[str] = []

    def nvmlInit(self) -> None:
        if self.broken:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlShutdown(self) -> None:
        pass

    def nvmlDeviceGetHandleByUUID(self, identity: str) -> str:
        self.asked.append(identity)
        return identity

    def nvmlDeviceGetClockInfo(self, handle: str, clock: int) -> int:
        return {1: 1980, 2: 2619}[clock]

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return 61

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 512_340

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return SimpleNamespace(gpu=7)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return 0x4


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="abc"))


def test_a_cpu_has_clocks_and_load_and_no_gpu() -> None:
    found = receipt("cpu")
    assert found["gpu"] is None and 0 <= found["busy_percent"] <= 100 and found["available_gib"] > 0


def test_a_gpu_is_asked_by_its_own_identity(monkeypatch: pytest.MonkeyPatch, one_gpu: None) -> None:
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    gpu = receipt("cuda:1")["gpu"]
    assert nvml.asked == ["GPU-abc"]
    assert gpu["sm_mhz"] == 1980 and gpu["power_w"] == 512.3 and gpu["throttle_reasons"] == "0x4"


def test_a_gpu_that_says_nothing_says_why(monkeypatch: pytest.MonkeyPatch, one_gpu: None) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(broken=True))
    assert "Driver Not Loaded" in receipt("cuda")["gpu"]["unknown"]
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py" in receipt("cuda")["gpu"]["unknown"]
