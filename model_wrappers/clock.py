"""The clock of a response: wall-clock, and how much of it the process really had.

Wall-clock alone does not say whether another program had the cores in the meantime. The CPU seconds
of the process and, on Linux, the seconds that its threads waited for a core do.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import torch

THREADS = Path("/proc/self/task")


@dataclass(frozen=True)
class Spent:
    """Seconds of a piece of work.

    seconds: wall-clock. cpu_seconds: of all threads of the process. waited_seconds: sum over the
    threads of the time that they could run and had no core; None where the system does not tell.
    device_seconds: between events on the GPU's own clock; None on a CPU.
    """

    seconds: float
    cpu_seconds: float
    waited_seconds: float | None
    device_seconds: float | None


class Clock:
    """Starts when it is made, and gives what was spent when it is stopped; synchronises the device.

    Attributes:
        start_time: as time.perf_counter.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._waited = _waited()
        self._events: list[torch.cuda.Event] = []
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            self._events[0].record()
        self._cpu = time.process_time()
        self.start_time = time.perf_counter()

    def stop(self) -> Spent:
        """What was spent since the start."""
        device_seconds = None
        if self._events:
            self._events[1].record()
            torch.cuda.synchronize(self._device)
        seconds = time.perf_counter() - self.start_time
        cpu_seconds = time.process_time() - self._cpu
        if self._events:
            device_seconds = self._events[0].elapsed_time(self._events[1]) / 1000
        waited = _waited()
        waited_seconds = None
        if waited:
            waited_seconds = sum(at - self._waited.get(thread, 0) for thread, at in waited.items()) / 1e9
        return Spent(seconds, cpu_seconds, waited_seconds, device_seconds)


def _waited() -> dict[str, int]:
    """Nanoseconds that each thread of the process has waited for a core; empty if nobody tells."""
    waited: dict[str, int] = {}
    if not THREADS.exists():
        return waited
    for thread in THREADS.iterdir():
        try:
            waited[thread.name] = int((thread / "schedstat").read_text().split()[1])
        except (OSError, ValueError, IndexError):  # the thread has ended, or the kernel counts none
            continue
    return waited
