"""The clocks of a response and of its draws: wall-clock time, the process's CPU time, and on a GPU
the device's own time."""

import time
from dataclasses import dataclass

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
        self._events: list[torch.cuda.Event] = []
        # Work that was queued before must not count, nor may this response's work be left out.
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            self._events[0].record(torch.cuda.current_stream(device))
        self._cpu = time.process_time()
        self.start_time = time.perf_counter()

    def stop(self) -> Spent:
        """The time spent since the start."""
        device_seconds = None
        if self._events:
            self._events[1].record(torch.cuda.current_stream(self._device))
            torch.cuda.synchronize(self._device)
        seconds = time.perf_counter() - self.start_time
        cpu_seconds = time.process_time() - self._cpu
        if self._events:
            device_seconds = self._events[0].elapsed_time(self._events[1]) / 1000
        return Spent(seconds, cpu_seconds, device_seconds)


class DrawTimer:
    """Adds up the seconds inside `with timer:`, in which a response draws tokens.

    Nested blocks count once. On a CUDA device, events of its stream mark begin and end, and the
    host does not wait for them before `total`.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._on_cuda = device.type == "cuda"
        self._depth = 0
        self._start_time = 0.0
        self._seconds = 0.0
        self._events: list[torch.cuda.Event] = []  # begin and end of every draw

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        if self._on_cuda:
            self._mark()
        else:
            self._start_time = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth > 0:
            return
        if self._on_cuda:
            self._mark()
        else:
            self._seconds += time.perf_counter() - self._start_time

    def total(self) -> float:
        """Seconds of all draws. A CUDA device must have been synchronised since the last one."""
        pairs = zip(self._events[::2], self._events[1::2], strict=True)
        milliseconds = sum(begin.elapsed_time(end) for begin, end in pairs)
        return self._seconds + milliseconds / 1000

    def _mark(self) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        self._events.append(event)
