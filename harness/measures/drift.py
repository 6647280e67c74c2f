"""What a caption says about the machine while a run was timed: LLaDA's own drift, load, throttling, sessions.

Methods are interleaved, so drift affects all of them equally. A large drift still shows that the machine changed during
the run. Runs whose run.json has no `sessions` get no such sentences.
"""

from typing import Any

from harness.measures.table import REFERENCE, suite_titles
from harness.records.store import Run

DRIFT = 0.10  # less than this is not mentioned
FEWEST = 9  # LLaDA's items on a suite, for a third to have three
BUSY = 25.0  # percent of all cores, before the run's own work
IDLE = 0x1  # NVML's bit for clocks that are low because there is nothing to do


def drift(run: Run) -> tuple[float, str] | None:
    """How far LLaDA's speed moved within the run, and on which suite: the farthest from 0; None without enough items.

    Of a suite with FEWEST items: median seconds per forward pass of LLaDA's last third, in the order of items.jsonl, /
    that of its first third, minus 1. Of a run with workers, each worker's items are taken by themselves.
    """
    own = run.items[run.items["method"] == REFERENCE]
    spent = own[["seconds", "forwards"]].astype(float)
    paces = spent["seconds"] / spent["forwards"]
    moved = []
    by = [own["suite"], *([own["worker"].fillna("")] if "worker" in own else [])]
    for key, pace in paces.groupby(by, sort=False, observed=True):
        third = len(pace) // 3
        if len(pace) >= FEWEST:
            moved.append((float(pace.iloc[-third:].median() / pace.iloc[:third].median() - 1), str(key[0])))
    return max(moved, key=lambda each: abs(each[0]), default=None)


def timing_sentences(run: Run) -> list[str]:
    """Sentences on one run's seconds: drift of more than DRIFT, and what the receipts of its sessions show."""
    moved, sessions = drift(run), run.meta.sessions
    sentences = []
    if moved and abs(moved[0]) > DRIFT:
        title = suite_titles(run)[moved[1]]
        sentences.append(
            f"LLaDA's own seconds drifted by {100 * moved[0]:+.0f}% within the run ({title}); methods were interleaved."
        )
    busiest = max(((each.get("start") or {}).get("busy_percent") or 0 for each in sessions), default=0)
    if busiest > BUSY:
        sentences.append(f"The machine was {busiest:.0f}% busy before the start.")
    ends = [
        each.get("end") or {} for session in sessions for each in (session, *(session.get("workers") or {}).values())
    ]
    reasons = dict.fromkeys(reason for end in ends if (reason := _throttled(end)))
    if reasons:
        sentences.append(f"The GPU reported throttling at the end ({', '.join(reasons)}).")
    if len(sessions) > 1:
        killed = sum(not each.get("end") for each in sessions)
        without = f", {killed} of them without an end" if killed else ""
        sentences.append(f"The run had {len(sessions)} sessions{without}.")
    return sentences


def _throttled(receipt: dict[str, Any]) -> str:
    """Why a receipt's GPU was throttled, NVML's bits in hexadecimal; "" if it was not, or if that is not known."""
    reported = (receipt.get("gpu") or {}).get("throttle_reasons")
    reasons = int(reported, 16) & ~IDLE if isinstance(reported, str) else 0
    return hex(reasons) if reasons else ""
