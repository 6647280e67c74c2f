"""Fair seconds: choosing the number of threads, and timing disturbed responses again."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from harness.runs.responses import Response

# Linux: a folder for each thread of this process.
THREADS = Path("/proc/self/task")
# The most times that a disturbed response is timed again.
MOST_REPEATS = 3
# The part of a response's wall-clock that its threads may wait for cores.
MOST_WAITED = 0.05
# The part of a method's usual share of the cores below which a response is disturbed.
LEAST_SHARE = 0.6
# Responses of a method that are needed before their median share counts as usual.
LEAST_RESPONSES = 3


class Timing:
    """Times disturbed responses again, as long as that takes no longer than everything else."""

    def __init__(self) -> None:
        # Shares of the cores, by method and suite.
        self._shares: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        # Of the first timing of every response, and of all further ones.
        self._seconds = 0.0
        self._seconds_again = 0.0

    def undisturbed(self, decode: Callable[[], Response]) -> Response:
        """Decode a response up to 1 + MOST_REPEATS times, until it is timed without disturbance.

        Args:
            decode: decodes the response; if its tokens differ, no further timing is tried.

        Returns:
            The first response that was not disturbed, or else the quickest, marked as disturbed.
        """
        first = _with_waits(decode)
        quickest = first
        self._seconds += first.item["seconds"]
        shares = self._shares[first.item["method"], first.item["suite"]]
        for _ in range(MOST_REPEATS):
            # The second bound: on a machine that is always busy a run takes at most twice as long.
            if not is_disturbed(quickest.item, shares) or self._seconds_again > self._seconds:
                break
            again = _with_waits(decode)
            self._seconds_again += again.item["seconds"]
            # Seconds of other tokens say nothing of the first ones.
            if again.item["tokens_hash"] != first.item["tokens_hash"]:
                break
            if (
                not is_disturbed(again.item, shares)
                or again.item["seconds"] < quickest.item["seconds"]
            ):
                quickest = again
        if is_disturbed(quickest.item, shares):
            quickest.item["disturbed"] = True
        shares.append(_share(quickest.item))
        return quickest


def _with_waits(decode: Callable[[], Response]) -> Response:
    """A response with `waited_seconds`: how long threads waited for cores, if the system counts
    it."""
    before = _waited()
    response = decode()
    after = _waited()
    if after:
        # A thread that ended meanwhile is left out; one that is new has waited from 0.
        nanoseconds = sum(waited - before.get(thread, 0) for thread, waited in after.items())
        response.item["waited_seconds"] = nanoseconds / 1e9
    return response


def _waited() -> dict[str, int]:
    """Nanoseconds that each thread of the process has waited for a core; empty if unknown."""
    waited: dict[str, int] = {}
    if not THREADS.exists():
        return waited
    for thread in THREADS.iterdir():
        # schedstat: nanoseconds on a core, nanoseconds waiting for one, time slices.
        try:
            waited[thread.name] = int((thread / "schedstat").read_text().split()[1])
        # The thread has ended, or the kernel was built without the counters.
        except (OSError, ValueError, IndexError):
            continue
    return waited


def is_disturbed(item: dict[str, Any], shares: Sequence[float]) -> bool:
    """Whether another program had the cores, or the GPU was slowed, while a response was timed.

    Waiting for a core is the direct sign. Not every system counts it, and a process may be stopped
    by other things, so the response's share of the cores, CPU seconds / (wall-clock * threads), is
    also compared with earlier ones.

    Args:
        item: the response's record.
        shares: of the cores, by earlier responses of the method on the suite.
    """
    if item.get("throttled"):
        return True
    if item.get("waited_seconds", 0.0) > MOST_WAITED * item["seconds"]:
        return True
    return len(shares) >= LEAST_RESPONSES and _share(item) < LEAST_SHARE * median(shares)


def _share(item: dict[str, Any]) -> float:
    return float(item["cpu_seconds"] / (item["seconds"] * torch.get_num_threads()))


def fastest_threads(trial: Callable[[], float]) -> int:
    """The number of threads that decode fastest: torch's default, or a half, a quarter, ... of it.

    The search ends at the first number that is slower. Torch is set to the fastest one.

    Args:
        trial: decodes something and returns the seconds of a whole response.
    """
    best = torch.get_num_threads()
    if best == 1:
        return 1
    # Twice: the first one finds caches cold.
    trial()
    seconds = trial()
    while best > 1:
        torch.set_num_threads(best // 2)
        halved = trial()
        if halved > seconds:
            break
        best //= 2
        seconds = halved
    torch.set_num_threads(best)
    return best
