"""The gate's comparison of verdicts: another revision's code judges the same responses.

Equal tokens are equal texts, so that verdicts which differ are a change of judges or references.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.errors import UserError
from harness.records.store import Run, read_run
from harness.regression.golden import compare
from harness.regression.revision import checkout


def judge_verdicts(run: Run, rev: str) -> bool:
    """Let a revision score a copy of a run, and print the verdicts that differ.

    Args:
        run: scored.
        rev: the revision of this repository.

    Returns:
        Whether all verdicts and references are equal.

    Raises:
        UserError: the revision cannot score the run.
    """
    with checkout(rev) as tree, tempfile.TemporaryDirectory(prefix="gate-") as scratch:
        copy = Path(scratch) / run.folder.name
        # Only the records: tables and reports are folders.
        copy.mkdir()
        for file in filter(Path.is_file, run.folder.iterdir()):
            shutil.copy(file, copy)
        command = [sys.executable, str(tree / "harness/scoring.py"), str(copy)]
        environment = os.environ | {"PYTHONPATH": str(tree)}
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise UserError(f"{rev} cannot score {run.folder}: {reason}")
        changed = compare(read_run(copy), run, ["gold", "correct"])
    if not changed.empty:
        print(changed.rename(columns={"golden": "before", "run": "now"}).to_string(index=False))
    print(f"verdicts of {len(run.items)} responses: {'passed' if changed.empty else 'CHANGED'}")
    return changed.empty
