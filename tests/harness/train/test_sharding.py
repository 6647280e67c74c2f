"""Training on several processes: the batch of a step, and a model that is sharded over them (FSDP2,
on CPUs)."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

from harness.errors import UserError
from harness.train.__main__ import options_of
from harness.train.recipes import PRESETS, Recipe
from harness.train.run import accumulation, set_weights, sharding
from model_wrappers import decode, load_backbone

TRAINER = '{"bf16": false, "logging_steps": 1, "save_total_limit": 5}'
LINE = [
    "--objective",
    "llada",
    "--preset",
    "nano",
    "--steps",
    "4",
    "--batch",
    "2",
    "--global-batch",
    "12",
]
LINE += ["--save-every", "2", "--trainer", TRAINER]


def given(*line: str) -> Recipe:
    return options_of(["--objective", "llada", "--preset", "nano", "--out", "x", *line])[1]


@pytest.mark.parametrize(("processes", "forwards"), [("1", 6), ("2", 3), ("3", 2), ("6", 1)])
def test_a_step_has_the_same_examples_on_any_number(
    processes: str, forwards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", processes)
    assert accumulation(given("--batch", "2", "--global-batch", "12")) == forwards
    assert accumulation(PRESETS["paper"]) == 2  # of each process, without a global batch


def test_a_global_batch_that_cannot_be_divided_and_one_shard_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(
        UserError, match=r"--global-batch 12 is no multiple of 8, .* \(--batch 2\) of 4 processes"
    ):
        accumulation(given("--batch", "2", "--global-batch", "12"))

    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(UserError, match="--shard needs several processes: torchrun"):
        sharding("Layer")


def test_whole_weights_are_loaded_into_a_plain_model() -> None:
    one, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    set_weights(one, other.state_dict())
    assert all(
        torch.equal(ours, theirs)
        for ours, theirs in zip(one.parameters(), other.parameters(), strict=True)
    )


def trained(out: Path, processes: int, *more: str) -> None:
    """Train in so many processes, sharded if there are several."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    torchrun = [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        str(processes),
        "--master-addr",
        "127.0.0.1",
    ]
    start = [*torchrun, "--master-port", port] if processes > 1 else []
    command = [sys.executable, *start, "-m", "harness.train", *LINE, "--out", str(out), *more]
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
def test_a_sharded_training_is_that_of_one_process_also_if_it_goes_on_with_another_number(
    tmp_path: Path,
) -> None:
    one, many = tmp_path / "one", tmp_path / "many"
    trained(one, 1)
    trained(many, 2, "--shard")
    assert (many / "checkpoints" / "checkpoint-2" / "pytorch_model_fsdp.bin").exists(), (
        "it was sharded"
    )
    for later in (many / "checkpoints" / "checkpoint-4", many / "checkpoints" / "last"):
        shutil.rmtree(later)  # as if it had been killed after step 2
    for file in ("loss.csv", "model.safetensors"):
        (many / file).unlink()
    trained(many, 3, "--shard", "--resume")
    curves = [pd.read_csv(folder / "loss.csv") for folder in (one, many)]
    assert curves[1]["step"].to_list() == [1, 2, 3, 4]
    for column in ("loss", "grad_norm", "learning_rate"):
        assert curves[1][column].to_list() == pytest.approx(curves[0][column].to_list(), rel=2e-5)
    backbones = [load_backbone(folder) for folder in (one, many)]
    prompt = backbones[0].text_tokenizer()("Copy [ cat, dog ]", return_tensors="pt").input_ids
    tokens = [
        decode(backbone, prompt, method="llada", gen_length=8).tokens for backbone in backbones
    ]
    assert torch.equal(*tokens)
