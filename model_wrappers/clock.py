"""The clock of a response: wall-clock, the process's CPU time, and on a GPU the device's own
time."""

import time
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Spent:
    """Seconds of a piece of work.

    seconds: wall-clock. cpu_seconds: of all threads of the process. device_seconds: between events
    on the GPU's own clock; None on a CPU.
    """

    seconds: float
    cpu_seconds: float
    device_seconds: float | None


class Clock:
    """Starts when it is made, and gives what was spent when it is stopped; synchronises the device.

    Attributes:
        start_time: as time.perf_counter.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events: list[torch.cuda.Event] = []
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            self._events[0].record(torch.cuda.current_stream(device))
        self._cpu = time.process_time()
        self.start_time = time.perf_counter()

    def stop(self) -> Spent:
        """What was spent since the start."""
        device_seconds = None
        if self._events:
            self._events[1].record(torch.cuda.current_stream(self._device))
            torch.cuda.synchronize(self._device)
        seconds = time.perf_counter() - self.start_time
        cpu_seconds = time.process_time() - self._cpu
        if self._events:
            device_seconds = self._events[0].elapsed_time(self._events[1]) / 1000
        return Spent(seconds, cpu_seconds, device_seconds)
