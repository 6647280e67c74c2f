"""What a response takes besides seconds: memory at its most, and joules by the device's
counters."""

import resource
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.runs import meters
from harness.runs.meters import EnergyCounters, Meter, gpu_counters, processor_counters

CPU = torch.device("cpu")
GPUS = [torch.device("cuda", 0), torch.device("cuda", 1)]


def zone(folder: Path, name: str, kind: str, energy: int, size: int = 1000) -> Path:
    """A counter of the processor as the kernel shows it."""
    made = folder / name
    made.mkdir(parents=True)
    (made / "name").write_text(f"{kind}\n")
    (made / "energy_uj").write_text(f"{energy}\n")
    (made / "max_energy_range_uj").write_text(f"{size}\n")
    return made


def test_a_counter_that_began_again_is_not_negative() -> None:
    counters = EnergyCounters(lambda: [0, 0], [1_000_000, 5])
    assert counters.joules([900_000, 3], [400_000, 3]) == 0.5


def test_packages_of_the_processor_are_counted_once(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 7)
    zone(tmp_path, "intel-rapl:0:0", "core", 5)
    zone(tmp_path, "intel-rapl:1", "package-1", 11)
    zone(tmp_path, "intel-rapl:2", "psys", 13)
    counters = processor_counters(tmp_path)
    assert counters is not None
    assert counters.read() == [7, 11] and counters.ranges == [1000, 1000]


def test_a_processor_without_counters_has_no_joules(tmp_path: Path) -> None:
    assert processor_counters(tmp_path) is None


def test_counters_that_may_not_be_read_give_no_joules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 7)
    read_text = Path.read_text

    def refused(path: Path, *options: Any, **more: Any) -> str:
        if path.name == "energy_uj":
            raise PermissionError(path)
        return read_text(path, *options, **more)

    monkeypatch.setattr(Path, "read_text", refused)
    assert processor_counters(tmp_path) is None


class NvmlError(Exception):
    """Of NVML."""


def nvml_of(millijoules: dict[str, int]) -> SimpleNamespace:
    """NVML of GPUs by their UUID, where some have no counter."""

    def energy(handle: str) -> int:
        if handle not in millijoules:
            raise NvmlError("Not Supported")
        return millijoules[handle]

    return SimpleNamespace(
        NVMLError=NvmlError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda identity: identity,
        nvmlDeviceGetTotalEnergyConsumption=energy,
    )


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=device.index)
    )


def test_gpus_are_asked_for_their_energy_together(
    monkeypatch: pytest.MonkeyPatch, two_gpus: None
) -> None:
    millijoules = {"GPU-0": 500, "GPU-1": 40}
    monkeypatch.setitem(sys.modules, "pynvml", nvml_of(millijoules))
    counters = gpu_counters(GPUS)
    assert counters is not None
    before = counters.read()
    millijoules["GPU-0"] = 2500
    assert counters.joules(before, counters.read()) == 2.0


def test_a_gpu_without_a_counter_has_no_joules(
    monkeypatch: pytest.MonkeyPatch, two_gpus: None
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml_of({"GPU-0": 1}))
    assert gpu_counters(GPUS) is None


def test_without_nvmls_bindings_there_are_no_joules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_counters(GPUS) is None


def test_on_a_cpu_the_peak_is_the_processs() -> None:
    meter = Meter([CPU], energy=False)
    meter.start()
    spent = meter.stop()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * meters.RSS_UNIT
    assert list(spent) == ["peak_bytes"] and 0 < spent["peak_bytes"] <= peak


def test_on_gpus_the_peak_begins_with_the_response(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = dict.fromkeys(GPUS, 100)
    monkeypatch.setattr(
        torch.cuda, "reset_peak_memory_stats", lambda device: peaks.update({device: 3})
    )
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", peaks.__getitem__)
    meter = Meter(GPUS, energy=False)
    meter.start()
    assert meter.stop() == {"peak_bytes": 6}


def test_joules_are_those_since_the_response_began(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([[0], [4_000_000], [6_500_000]])
    counters = EnergyCounters(lambda: next(readings), [2**40])
    counters.read()
    monkeypatch.setattr(meters, "processor_counters", lambda: counters)
    meter = Meter([CPU], energy=True)
    meter.start()
    assert meter.stop()["joules"] == 2.5
