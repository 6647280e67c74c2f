"""OpenCompass's own command line runs the adapter, with its own inferencer and evaluator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.suites.registry import generated_dataset, suite_named
from harness.suites.splits import write_suites


@pytest.mark.slow
def test_a_plain_configuration_of_two_items_runs(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("opencompass")
    if not command.exists():
        pytest.skip("opencompass has no command here")
    write_suites(tmp_path, "test", 3, ["gsm8k"])
    dataset = generated_dataset(suite_named("gsm8k"), tmp_path)
    dataset["reader_cfg"]["test_range"] = "[0:2]"
    model = {
        "type": "model_wrappers.opencompass_model.DiffusionModel",
        "abbr": "fef-2",
        "path": "nano",
        "method": "fef",
        "options": {"steps": 2},
        "gen_length": 48,
        "batch_size": 1,
        "max_out_len": 48,
        "run_cfg": {"num_gpus": 0},
    }
    (tmp_path / "config.py").write_text(f"datasets = [{dataset!r}]\nmodels = [{model!r}]\n")
    line = [str(command), "config.py", "--work-dir", "out", "--debug"]
    environment = os.environ | {"HF_DATASETS_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (predictions,) = tmp_path.glob("out/*/predictions/fef-2/gsm8k.json")
    found = json.loads(predictions.read_text())
    assert len(found) == 2 and all(
        isinstance(each["prediction"], str) and each["prediction"] for each in found.values()
    )
    (results,) = tmp_path.glob("out/*/results/fef-2/gsm8k.json")
    assert 0 <= json.loads(results.read_text())["accuracy"] <= 100
