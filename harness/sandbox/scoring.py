"""Scoring: a stage of its own, on finished records, through OpenCompass's evaluators; it can be repeated at any time.

The evaluators run in a process of their own, and of two suites (HumanEval, MBPP) they execute code that a model wrote:
every program in a bubblewrap sandbox of its own, without network, with a read-only view of the system's folders, an
empty scratch folder, and limits on memory, processes, files and time. Where no sandbox works, the items of these suites
are not scored, and the tables say so and what to do; with --unsafe-code-execution such code then runs unprotected.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.records.store import Recorder, Run, read_meta, write_meta
from harness.sandbox.options import UNSAFE_OPTION


def score_run(folder: Path, unsafe: bool = False, pending: bool = False) -> dict[str, Any]:
    """Score items of a run in a separate process and write `correct` into its records.

    unsafe: run model-written code even where no sandbox works. pending: of methods and suites that have no verdicts
    yet; otherwise all anew, and where a suite cannot be scored now, verdicts that it had are removed, never kept beside
    new ones. Returns what run.json receives as `scoring`: {"sandbox": "bubblewrap", "unsafe" or "none", "not_scored":
    {suite: why}}. Raises UserError if the process fails.
    """
    folder = Path(folder).resolve()
    meta = read_meta(folder)  # refused here, if it is damaged, and not in the process of the evaluators
    recorder = Recorder(folder)
    if pending and all(item.get("correct") is not None for item in recorder.items.values()):
        scoring = meta.scoring or {"sandbox": "none", "not_scored": {}}
        write_meta(folder, {"scoring": scoring})
        return scoring
    with tempfile.TemporaryDirectory(prefix="scoring-") as scratch:
        verdicts = Path(scratch) / "verdicts.json"
        options = [str(verdicts), *(["--pending"] if pending else []), *([UNSAFE_OPTION] if unsafe else [])]
        environment = os.environ | {
            "HF_HOME": scratch,
            "HF_DATASETS_CACHE": scratch,
            "TMPDIR": scratch,
            "TOKENIZERS_PARALLELISM": "false",
        }
        command = [sys.executable, "-m", "harness.sandbox.verdicts", str(folder), *options]
        done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not verdicts.exists():
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise UserError(f"scoring failed: {reason}; the records are kept, try: python harness/scoring.py {folder}")
        scored = json.loads(verdicts.read_text(encoding="utf-8"))
    recorder.score({(method, suite, item): correct for method, suite, item, correct in scored["rows"]})
    scoring = scored["scoring"]
    write_meta(folder, {"scoring": scoring})
    return scoring


def describe_scoring(scoring: dict[str, Any]) -> str:
    """What a scoring did with model-written code, in one line."""
    if scoring["not_scored"]:
        reasons = "; ".join(dict.fromkeys(scoring["not_scored"].values()))
        return f"scored, but not {', '.join(scoring['not_scored'])}: {reasons}"
    containment = {
        "bubblewrap": "every model-written program in a sandbox of its own (bubblewrap)",
        "unsafe": "model-written programs UNPROTECTED, for no sandbox works here",
        "none": "no model-written program was run",
    }
    return f"scored: {containment[scoring['sandbox']]}"


def accuracies(run: Run) -> list[str]:
    """A line per method and suite: the percentage that is right, of how many."""
    lines = []
    for (method, suite), group in run.items.groupby(["method", "suite"], sort=False):
        verdicts = group["correct"].dropna().astype(bool)
        shown = f"{100 * verdicts.mean():6.2f}% of {len(verdicts)}" if len(verdicts) else "not scored"
        lines.append(f"{method:12} {run.config.suites[str(suite)].title:10} {shown}")
    return lines
