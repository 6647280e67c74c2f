"""Slurm: the batch script of the docs on two nodes, and OpenCompass's own command line with its
Slurm runner.

A real slurmctld, two slurmd and munge on this machine (make test-slurm).
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from opencompass_config import write_config
from paths import ROOT

from harness.records.store import read_run
from harness.run import main

pytestmark = pytest.mark.long
HERE = Path(__file__).parent
LINE = ["--suite", "gsm8k,lists", "--methods", "llada,fef-2", "--limit", "4", "--threads", "1"]
WITHIN = 300  # seconds for a job


@pytest.fixture(scope="module")
def slurm() -> Iterator[dict[str, str]]:
    """The environment of who submits jobs to a Slurm of two nodes, n1 and n2."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        script = [str(HERE / "slurm.sh")]
        try:
            subprocess.run([*script, "start", folder], check=True)
            path = os.pathsep.join(
                [str(HERE / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
            )
            yield os.environ | {
                "SLURM_CONF": f"{folder}/slurm.conf",
                "PATH": path,
                "PYTHON": sys.executable,
            }
        finally:
            subprocess.run([*script, "stop", folder], check=True)


def finished(job: str, environment: dict[str, str]) -> str:
    """The state of a job when it has ended."""
    deadline = time.monotonic() + WITHIN
    while time.monotonic() < deadline:
        line = ["scontrol", "show", "job", job]
        said = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
        state = said.stdout.partition("JobState=")[2].split()[0]
        if state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
            return state
        time.sleep(0.5)
    raise AssertionError(f"job {job} did not end within {WITHIN} s")


def test_the_batch_script_runs_on_both_nodes_with_the_tokens_of_one_process(
    slurm: dict[str, str], tmp_path: Path
) -> None:
    run, said = tmp_path / "run", tmp_path / "said"
    submit = [
        "sbatch",
        "--parsable",
        "--nodes",
        "2",
        "--output",
        str(said),
        str(ROOT / "docs" / "run.sbatch"),
    ]
    with tempfile.TemporaryDirectory(
        prefix="ray-"
    ) as short:  # the path of a socket may not be longer than 107 bytes
        own = {
            "RAY_TMPDIR": short,
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",
            "PYTHONPATH": str(ROOT),
        }
        line = [*submit, *LINE, "--workers", "2", "--out", str(run)]
        job = subprocess.run(
            line, cwd=ROOT, env=slurm | own, capture_output=True, text=True, check=True
        ).stdout.strip()
        state = finished(job, slurm)
    log = ROOT / f"ray-{job}.log"
    ray = log.read_text() if log.exists() else ""
    log.unlink(missing_ok=True)
    assert state == "COMPLETED", said.read_text() + ray
    assert main([*LINE, "--out", str(tmp_path / "one")]) == 0
    keys = ["method", "suite", "item"]
    two, one = (
        read_run(folder).items.set_index(keys).sort_index() for folder in (run, tmp_path / "one")
    )
    assert len(two) == 16 and two["tokens_hash"].equals(one["tokens_hash"])
    assert two["worker"].nunique() == 2


def test_opencompass_runs_the_same_suites_with_its_slurm_runner(
    slurm: dict[str, str], tmp_path: Path
) -> None:
    models = {"llada": ("nano", "llada", {}), "fef-2": ("nano-fef", "fef", {"steps": 2})}
    write_config(tmp_path, 4, **models)
    line = [
        "opencompass",
        "config.py",
        "--slurm",
        "-p",
        "test",
        "--max-num-workers",
        "2",
        "-w",
        "out",
    ]
    own = {
        "HF_DATASETS_CACHE": str(tmp_path / "cache"),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }
    how = {"cwd": tmp_path, "env": slurm | own, "timeout": WITHIN}
    done = subprocess.run(line, **how, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert main([*LINE, "--suite", "gsm8k", "--out", str(tmp_path / "run")]) == 0
    items = read_run(tmp_path / "run").items
    for model in models:
        (predictions,) = tmp_path.glob(f"out/*/predictions/{model}/gsm8k.json")
        found = json.loads(predictions.read_text())
        texts = items[items["method"] == model].sort_values("item")["text"].to_list()
        assert [found[str(item)]["prediction"] for item in range(4)] == texts
