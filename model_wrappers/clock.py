"""The clocks of a response and of its draws: wall-clock time, the process's CPU time, and on a GPU
the device's own time."""

import time
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Spent:
    """Seconds of a piece of work.

    Attributes:
        seconds: wall-clock time.
        cpu_seconds: CPU time of all threads of the process.
        device_seconds: time between two events on the GPU's own clock; None on a CPU.
    """

    seconds: float
    cpu_seconds: float
    device_seconds: float | None


class Clock:
    """A stopwatch that starts when it is made; start and stop synchronise the device.

    Attributes:
        start_time: time.perf_counter at the start.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # Work that was queued before must not count, nor may this response's work be left out.
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        self._begin = _mark(device)
        self._cpu = time.process_time()
        self.start_time = time.perf_counter()

    def stop(self) -> Spent:
        """The time spent since the start."""
        on_cuda = self._device.type == "cuda"
        end = _mark(self._device)
        if on_cuda:
            torch.cuda.synchronize(self._device)
        seconds = time.perf_counter() - self.start_time
        cpu_seconds = time.process_time() - self._cpu
        return Spent(seconds, cpu_seconds, _between(self._begin, end) if on_cuda else None)


class DrawTimer:
    """Adds up the seconds inside `with timer:`, in which a response draws tokens.

    Nested blocks count once. On a CUDA device, events of its stream mark begin and end, and the
    host does not wait for them before `total`.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._depth = 0
        self._marks: list[Any] = []  # begin and end of every draw

    def __enter__(self) -> None:
        if self._depth == 0:
            self._marks.append(_mark(self._device))
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._marks.append(_mark(self._device))

    def total(self) -> float:
        """Seconds of all draws. A CUDA device must have been synchronised since the last one."""
        return sum(map(_between, self._marks[::2], self._marks[1::2]), 0.0)


def _mark(device: torch.device) -> Any:
    """The present moment: an event of a CUDA device's stream, or else time.perf_counter."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def _between(begin: Any, end: Any) -> float:
    """Seconds between two moments of `_mark`."""
    if isinstance(begin, float):
        return end - begin
    return begin.elapsed_time(end) / 1000
