"""A whole run, a harness's model and a likelihood on a rehearsed GPU: the numbers of the CPU."""

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from rehearsal import RehearsedGPU

import harness
from model_wrappers import load_backbone
from model_wrappers.likelihood import log_likelihood
from model_wrappers.text_model import TextModel

pytestmark = pytest.mark.slow

DEVICE = SimpleNamespace(
    uuid="GPU-0", name="Rehearsed", total_memory=2**36, major=8, minor=0, multi_processor_count=108
)
VALUES: dict[str, Any] = {
    "get_device_properties": lambda *_: DEVICE,
    "mem_get_info": lambda *_: (2**35, 2**36),
    "device_count": lambda: 1,
    "max_memory_allocated": lambda *_: 2**30,
    "reset_peak_memory_stats": lambda *_: None,
    "get_rng_state": lambda *_: torch.zeros(16, dtype=torch.uint8),
}


@pytest.mark.parametrize("options", [{}, {"temperature": 0.8}], ids=["greedy", "sampled"])
def test_a_run_on_a_gpu_has_the_tokens_of_the_cpu(options: dict[str, Any], tmp_path: Path) -> None:
    settings = options | {
        "methods": "llada; fef-2; fef-two-stream",
        "suites": "gsm8k",
        "model": "nano",
        "limit": 1,
        "dtype": "float32",
        "untimed": True,
        "quiet": True,
    }
    here = harness.evaluate(out=tmp_path / "cpu", **settings)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    with RehearsedGPU(), ExitStack() as stack:
        stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, False)
        for name, value in VALUES.items():
            stack.enter_context(patch.object(torch.cuda, name, value))
        there = harness.evaluate(out=tmp_path / "gpu", device="cuda", **settings)
    columns = ["method", "accuracy", "forwards"]
    assert there.summary[columns].equals(here.summary[columns])
    assert there.items["tokens_hash"].tolist() == here.items["tokens_hash"].tolist()


@pytest.mark.parametrize("method", ["llada", "fef"])
def test_a_harness_model_and_a_likelihood_are_those_of_the_cpu(method: str) -> None:
    prompt_P = torch.arange(20, 40)
    answer_A = torch.arange(50, 56)
    here = TextModel(load_backbone("nano"), method, gen_length=8)
    expected = here.respond(prompt_P, seed=0).tokens
    likelihood = log_likelihood(here.backbone, prompt_P, answer_A, draws=4).value
    with RehearsedGPU() as gpu:
        there = TextModel(gpu.place(load_backbone("nano")), method, gen_length=8)
        assert there.respond(prompt_P, seed=0).tokens.equal(expected)
        again = log_likelihood(there.backbone, prompt_P, answer_A, draws=4).value
    assert again == pytest.approx(likelihood, rel=1e-6)
