"""The prompts of runs on generated problems that recorded none: generated again, and used if they are the run's own."""

from __future__ import annotations

import hashlib

from harness.records.store import Run
from harness.suites.registry import SUITES
from harness.suites.splits import drawn, split_named


def generated_prompts(run: Run) -> dict[tuple[str, int], str]:
    """What was asked, by suite and item, without the chat template; {} of suites whose problems are not generated.

    The problems are those of the run if their file has the SHA-256 that the run recorded.
    """
    data = run.config.data
    found: dict[tuple[str, int], str] = {}
    for suite in run.config.suites:
        generator = SUITES[suite].generator if suite in SUITES else None
        if generator is None or not isinstance(data, str) or split_named(data) is None:
            continue
        own = drawn(SUITES[suite], data, run.config.limit)
        content = generator.content([problem.row for problem in own]).encode()
        recorded = (run.meta.data.get("files") or {}).get(suite, {}).get("sha256")
        if recorded in (None, hashlib.sha256(content).hexdigest()):
            found |= {(suite, item): problem.question for item, problem in enumerate(own)}
    return found
