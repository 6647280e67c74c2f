"""What a run does so that its seconds are a decoder's: threads that suit the machine, and timing
again what was disturbed.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from harness.runs.responses import Response

THREADS = Path("/proc/self/task")
AGAIN = 3  # times that a disturbed response is timed again
WAITED = 0.05  # of its wall-clock that the threads of a response may wait for cores
USUAL = 0.6  # of a method's usual share of the cores, below which a response is disturbed
FEWEST = 3  # responses whose median share is the usual one


class Timing:
    """Times responses again that other programs disturbed, while that takes no longer than all
    else."""

    def __init__(self) -> None:
        # of cores, by method and suite
        self._shares: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        self._seconds = 0.0  # of responses, each once
        self._seconds_again = 0.0

    def undisturbed(self, decode: Callable[[], Response]) -> Response:
        """A response that was timed while nobody else had the cores, if that is to be had in four
        times.

        Args:
            decode: gives it; always the same tokens, or the first response stands.

        Returns:
            The first one that was not disturbed, or else the quickest, which is marked as
            disturbed.
        """
        first = _with_waits(decode)
        quickest = first
        self._seconds += first.item["seconds"]
        shares = self._shares[first.item["method"], first.item["suite"]]
        for _ in range(AGAIN):
            if not is_disturbed(quickest.item, shares) or self._seconds_again > self._seconds:
                break
            again = _with_waits(decode)
            self._seconds_again += again.item["seconds"]
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
    """A response with the seconds that threads waited for cores meanwhile, where the system counts
    them."""
    before = _waited()
    response = decode()
    after = _waited()
    if after:
        nanoseconds = sum(waited - before.get(thread, 0) for thread, waited in after.items())
        response.item["waited_seconds"] = nanoseconds / 1e9
    return response


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


def is_disturbed(item: dict[str, Any], shares: Sequence[float]) -> bool:
    """Whether another program had the cores, or the GPU was slowed, while a response was timed.

    Waiting for a core tells at once. Where the system does not count it, and for what else stops a
    process, the response's share of the cores, CPU seconds / (wall-clock * threads), is compared
    with earlier ones of its method.
    """
    if item.get("throttled"):
        return True
    if item.get("waited_seconds", 0.0) > WAITED * item["seconds"]:
        return True
    return len(shares) >= FEWEST and _share(item) < USUAL * median(shares)


def _share(item: dict[str, Any]) -> float:
    return float(item["cpu_seconds"] / (item["seconds"] * torch.get_num_threads()))


def fastest_threads(trial: Callable[[], float]) -> int:
    """The number of threads that decode fastest: what torch takes, or fewer.

    From the most downwards by halves, until fewer are slower.

    Args:
        trial: decodes something and gives the seconds of a whole response.
    """
    best = torch.get_num_threads()
    if best == 1:
        return 1
    trial()  # the first one finds caches cold
    seconds = trial()
    while best > 1:
        torch.set_num_threads(best // 2)
        tried = trial()
        if tried > seconds:
            break
        best //= 2
        seconds = tried
    torch.set_num_threads(best)
    return best
