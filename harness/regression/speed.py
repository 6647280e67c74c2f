"""Speed against another revision: both decode the same prompts on this machine, in turn, response by response.

Seconds of another machine or day mean nothing, so they are measured again: two processes, one on a checkout of the
other revision, one on the working tree, each idle while the other decodes. They strictly alternate: a process that
decodes twice in a row is up to 10% slower the second time, so every response has to follow one of the other side.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.errors import UserError
from harness.measures.table import REFERENCE
from harness.records.schema import RunConfig
from harness.regression.process import Worker, request_of
from harness.regression.revision import ROOT
from harness.stats import percentile_interval

if TYPE_CHECKING:
    from harness.runs.inference import SuiteJob

Seconds = npt.NDArray[np.float64]


def measure_both(
    tree: Path, config: RunConfig, jobs: list[SuiteJob], items: int, methods: Collection[str] | None = None
) -> tuple[pd.DataFrame, list[str]]:
    """Seconds of the first `items` items of every job, by its methods, with the code of `tree` and with this one.

    methods: which ones; None for all. Returns a row per (method, suite, item): old and new seconds (the faster of two,
    for what else a machine does only adds), old_forwards, new_forwards, same_tokens; and sentences on methods that the
    other revision cannot run. Raises UserError if this tree alone cannot run one.
    """
    # A process may be up to a tenth slower than another of the same code, for as long as it lives (results/LOG.md).
    # With a pair of processes for each item that is noise, which the intervals show. Where starting may take minutes,
    # on a GPU or with torch.compile, all items share a pair.
    light = config.device == "cpu" and not config.compile
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    with ExitStack() as stack:
        workers: list[Worker] = []
        for job in jobs:
            for item, prompt in enumerate(job.prompts[:items]):
                if light or not workers:
                    stack.close()
                    workers = [stack.enter_context(Worker(each, config.threads or 1)) for each in (tree, ROOT)]
                for method, model in job.models.items():
                    if methods is not None and method not in methods:
                        continue
                    request = request_of(config, model, prompt.tolist())
                    old, new = (worker.decode(request).get("error") for worker in workers)  # warms both up, too
                    if old is not None:
                        notes.append(f"{method} on {job.suite} is left out: {old}")
                        continue
                    if new is not None:
                        raise UserError(f"{method} on {job.suite} is decoded by the other revision, not by this: {new}")
                    answers = [worker.decode(request) for worker in workers * 2]
                    rows.append(
                        {
                            "method": method,
                            "suite": job.suite,
                            "item": item,
                            "old": min(answers[0]["seconds"], answers[2]["seconds"]),
                            "new": min(answers[1]["seconds"], answers[3]["seconds"]),
                            "old_forwards": answers[0]["forwards"],
                            "new_forwards": answers[1]["forwards"],
                            "same_tokens": answers[0]["tokens"] == answers[1]["tokens"],
                        }
                    )
    return pd.DataFrame(rows), list(dict.fromkeys(notes))


def compare_seconds(measured: pd.DataFrame, tolerance: float) -> pd.DataFrame:
    """One row per method: what it takes now of what it took before, with paired bootstrap intervals over the items.

    measured: rows of `measure_both`. seconds: new total / old total; speed: the speedup over LLaDA now / before, for
    methods other than LLaDA. verdict: "regressed" where the whole interval of seconds lies above 1 + tolerance, or that
    of speed below 1 / (1 + tolerance); else "ok".
    """
    sides = measured.pivot_table(index=["suite", "item"], columns="method", values=["old", "new"])
    rows = []
    for method in measured["method"].unique():
        own = {side: sides[side, method].dropna() for side in ("old", "new")}
        seconds = _ratio([own["new"].to_numpy(), own["old"].to_numpy()])
        row = {"verdict": "ok", "method": method, **_columns("seconds", seconds)}
        slower = seconds[1] > 1 + tolerance
        if method != REFERENCE and ("old", REFERENCE) in sides:
            both = sides[[(side, name) for side in ("new", "old") for name in (REFERENCE, method)]].dropna()
            speed = _ratio([both[column].to_numpy() for column in both.columns])
            row |= _columns("speed", speed)
            slower |= speed[2] < 1 / (1 + tolerance)
        rows.append({**row, "verdict": "regressed" if slower else "ok"})
    return pd.DataFrame(rows)


def _columns(name: str, value: tuple[float, float, float]) -> dict[str, float]:
    return dict(zip((name, f"{name}_low", f"{name}_high"), value, strict=True))


def _ratio(parts: list[Seconds]) -> tuple[float, float, float]:
    """A ratio of totals and its interval: parts (new, old), or (new LLaDA, new method, old LLaDA, old method)."""

    def ratio(*drawn: Seconds, axis: int = -1) -> Any:
        sums = [part.sum(axis=axis) for part in drawn]
        return sums[0] / sums[1] if len(sums) == 2 else (sums[0] / sums[1]) / (sums[2] / sums[3])

    value = float(ratio(*parts))
    if len(parts[0]) < 2:
        return value, value, value
    return (value, *percentile_interval(parts, ratio, paired=True))
