"""What a response takes besides time: memory at its most, and energy.

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
MICRO = 1_000_000  # microjoules of a joule
RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of ru_maxrss


@dataclass(frozen=True)
class EnergyCounters:
    """Counters that only rise.

    Attributes:
        read: gives them, in microjoules.
        ranges: where they begin again from 0, in microjoules.
    """

    read: Callable[[], list[int]]
    ranges: Sequence[int]

    def joules(self, before: Sequence[int], after: Sequence[int]) -> float:
        """The energy between two readings, in joules, of all counters together."""
        total = 0
        for start, end, size in zip(before, after, self.ranges, strict=True):
            total += end - start
            if end < start:
                total += size
        return total / MICRO


def gpu_counters(devices: Sequence[torch.device]) -> EnergyCounters | None:
    """NVML's counters of CUDA devices; None without its bindings, or on GPUs that have none."""
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

        read()
    except pynvml.NVMLError:
        return None
    return EnergyCounters(read, [2**64] * len(handles))


def processor_counters(folder: Path = POWERCAP) -> EnergyCounters | None:
    """RAPL's counters of the processor's packages; None where there are none that may be read."""
    # Zones of a package's parts, as intel-rapl:0:0 of its cores, and of the whole platform would
    # count energy twice.
    zones = sorted(folder.glob("intel-rapl:*"))
    try:
        packages = [
            zone for zone in zones if (zone / "name").read_text().strip().startswith("package")
        ]
        files = [package / "energy_uj" for package in packages]

        def read() -> list[int]:
            return [int(file.read_text()) for file in files]

        ranges = [int((package / "max_energy_range_uj").read_text()) for package in packages]
        read()
    except (OSError, ValueError):
        return None
    return EnergyCounters(read, ranges) if packages else None


class Meter:
    """Measures one response after the other.

    Args:
        devices: where the models are.
        energy: whether joules are wanted; reading the counters takes time, though none of the
            decoder's.
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
        used = {
            parameter.device for backbone in backbones for parameter in backbone.model.parameters()
        }
        return cls(sorted(used, key=str), energy)

    def start(self) -> None:
        """A response begins."""
        for device in self._cuda:
            torch.cuda.reset_peak_memory_stats(device)
        if self._counters is not None:
            self._before = self._counters.read()

    def stop(self) -> dict[str, Any]:
        """What the response took, as a record has it: peak_bytes, and joules if they are known."""
        if self._cuda:
            peak = sum(torch.cuda.max_memory_allocated(device) for device in self._cuda)
        else:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT
        spent: dict[str, Any] = {"peak_bytes": peak}
        if self._counters is not None:
            spent["joules"] = self._counters.joules(self._before, self._counters.read())
        return spent
