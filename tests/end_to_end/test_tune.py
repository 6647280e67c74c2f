"""harness/tune.py from its command to a choice that harness/run.py takes, and again after a stop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import tune
from harness.methods.selection import methods_named

pytestmark = pytest.mark.slow

LINE = ["--suite", "mbpp", "--decoders", "llada,threshold", "--budget", "2", "--limit", "1", "--threads", "1"]


def test_a_tuning_ends_with_a_choice_and_the_same_command_goes_on(tmp_path: Path) -> None:
    line = [*LINE, "--out", str(tmp_path / "tuned")]
    assert tune.main(line) == 0
    path = tmp_path / "tuned" / "choice.json"
    first = json.loads(path.read_text())
    assert {"llada-tuned-fast", "threshold-tuned-fast"} <= set(methods_named(str(path)))
    assert {method["role"] for method in first["methods"].values()} == {"base", "fef", "control"}
    assert "| **threshold** | fast |" in (tmp_path / "tuned" / "choice.md").read_text()
    path.unlink()
    assert tune.main(line) == 0 and json.loads(path.read_text()) == first
