"""Peak memory and energy of a response.

Energy is of whole devices: of the GPUs, or of the processor with all that runs on it.
"""

import resource
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from harness.records.environment import nvml_handle
from model_wrappers import Backbone

POWERCAP = Path("/sys/class/powercap")
# Microjoules in a joule.
MICRO = 1_000_000
# Bytes in the unit of ru_maxrss, which is 1024 bytes except on macOS.
RSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True)
class EnergyCounters:
    """Energy counters that only rise, until they overflow and begin again from 0.

    Attributes:
        read: returns the counters in microjoules.
        ranges: the value at which each one overflows, in microjoules.
    """

    read: Callable[[], list[int]]
    ranges: Sequence[int]

    def joules(self, before: Sequence[int], after: Sequence[int]) -> float:
        """The energy between two readings, in joules, of all counters together."""
        total = 0
        for start, end, size in zip(before, after, self.ranges, strict=True):
            total += end - start
            # It overflowed, and only once: no response takes the energy of a counter's whole range.
            if end < start:
                total += size
        return total / MICRO


def gpu_counters(devices: Sequence[torch.device]) -> EnergyCounters | None:
    """NVML's energy counters of CUDA devices; None without its bindings, or where a GPU has
    none."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        handles = [nvml_handle(device) for device in devices]

        def read() -> list[int]:
            millijoules = map(pynvml.nvmlDeviceGetTotalEnergyConsumption, handles)
            return [1000 * energy for energy in millijoules]

        # Once now: an old GPU refuses here, and not in the first response.
        read()
    except pynvml.NVMLError:
        return None
    return EnergyCounters(read, [2**64] * len(handles))


def processor_counters(folder: Path = POWERCAP) -> EnergyCounters | None:
    """RAPL's energy counters of the processor's packages; None if none can be read."""
    # Only packages: their parts, such as intel-rapl:0:0 of the cores, and the whole platform would
    # count the same energy twice.
    zones = sorted(folder.glob("intel-rapl:*"))
    try:
        packages = [
            zone for zone in zones if (zone / "name").read_text().strip().startswith("package")
        ]
        files = [package / "energy_uj" for package in packages]

        def read() -> list[int]:
            return [int(file.read_text()) for file in files]

        ranges = [int((package / "max_energy_range_uj").read_text()) for package in packages]
        # Once now: many systems let only root read the counters.
        read()
    except (OSError, ValueError):
        return None
    return EnergyCounters(read, ranges) if packages else None


class Meter:
    """Measures peak memory and energy of one response after the other.

    Args:
        devices: of the models.
        energy: measure joules too; reading the counters takes time, but none that is timed.
    """

    def __init__(self, devices: Sequence[torch.device], energy: bool) -> None:
        self._cuda = [device for device in devices if device.type == "cuda"]
        self._counters: EnergyCounters | None = None
        if energy:
            self._counters = gpu_counters(self._cuda) if self._cuda else processor_counters()
        self._before: list[int] = []

    @classmethod
    def of(cls, backbones: Iterable[Backbone], energy: bool) -> "Meter":
        """The meter of the devices that models are on."""
        devices = {
            parameter.device for backbone in backbones for parameter in backbone.model.parameters()
        }
        return cls(sorted(devices, key=str), energy)

    def start(self) -> None:
        """Note the counters before a response."""
        for device in self._cuda:
            torch.cuda.reset_peak_memory_stats(device)
        if self._counters is not None:
            self._before = self._counters.read()

    def stop(self) -> dict[str, Any]:
        """The fields of the response's record: peak_bytes, and joules if there are counters."""
        if self._cuda:
            peak = sum(torch.cuda.max_memory_allocated(device) for device in self._cuda)
        else:
            # Of the process since its start: the system has no peak that can be reset.
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT
        fields: dict[str, Any] = {"peak_bytes": peak}
        if self._counters is not None:
            fields["joules"] = self._counters.joules(self._before, self._counters.read())
        return fields
