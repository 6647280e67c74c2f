"""OpenCompass's own command line runs the adapter, with its own inferencer and evaluator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from opencompass_config import write_config


@pytest.mark.slow
def test_a_plain_configuration_of_two_items_runs(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("opencompass")
    if not command.exists():
        pytest.skip("opencompass has no command here")
    write_config(tmp_path, 2, fef=("nano", "fef", {"steps": 2}))
    line = [str(command), "config.py", "--work-dir", "out", "--debug"]
    environment = os.environ | {"HF_DATASETS_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (predictions,) = tmp_path.glob("out/*/predictions/fef/gsm8k.json")
    found = json.loads(predictions.read_text())
    assert len(found) == 2 and all(
        isinstance(each["prediction"], str) and each["prediction"] for each in found.values()
    )
    (results,) = tmp_path.glob("out/*/results/fef/gsm8k.json")
    assert 0 <= json.loads(results.read_text())["accuracy"] <= 100
