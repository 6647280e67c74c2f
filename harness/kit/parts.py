"""The parts of the kit, in the order in which they are measured: the most wanted first."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import torch

from harness.costs.architectures import random_backbone
from harness.costs.costs import bench_costs, statements
from harness.costs.decoders import bench_methods, bench_prompts
from harness.costs.memory import bench_memory
from harness.costs.training import EVERY, MASKED, bench_training
from harness.kit.responses import bench_responses
from harness.methods.asked import methods_named
from harness.records.kit import KitSizes
from harness.records.store import read_run
from model_wrappers import load_backbone
from model_wrappers.backbones.registry import device_named

GOLDEN = Path(__file__).resolve().parents[2] / "results" / "golden" / "nano"
PASSES_DTYPE = "bfloat16"
GRAPHS = "CUDA graphs"
OVERHEAD = "llada,threshold,fef-2,fef-fast,fef-two-stream"
OBJECTIVES = ("llada", EVERY, MASKED)
Measured = tuple[dict[str, pd.DataFrame], list[str]]  # tables by name, and what they say in words
Part = Callable[[], Measured]


def parts_of(sizes: KitSizes, device: str) -> dict[str, Part]:
    """What each part measures, by its name. A part loads its own model, and leaves none behind."""
    parts: dict[str, Part] = {"responses": partial(_responses, sizes, device)}
    for prompt, response in sizes.lengths:
        parts[f"passes, {prompt + response} tokens"] = partial(_passes, sizes, device, prompt, response)
    for prompt, response in sizes.lengths:
        parts[f"memory, {prompt + response} tokens"] = partial(_memory, sizes, device, prompt, response)
    parts |= {"overhead": partial(_overhead, sizes, device), "training": partial(_training, sizes, device)}
    if device_named(device).type == "cuda":
        parts[f"responses, {GRAPHS}"] = partial(_responses, sizes, device, cuda_graphs=True)
        for prompt, response in sizes.lengths:
            name = f"passes, {prompt + response} tokens, {GRAPHS}"
            parts[name] = partial(_passes, sizes, device, prompt, response, cuda_graphs=True)
    return parts


def free(device: torch.device) -> None:
    """Give back what a part has left of the device's memory."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _responses(sizes: KitSizes, device: str, cuda_graphs: bool = False) -> Measured:
    return bench_responses(read_run(GOLDEN, windows=False), device, sizes.problems, sizes.methods, cuda_graphs)


def _passes(sizes: KitSizes, device: str, prompt: int, response: int, cuda_graphs: bool = False) -> Measured:
    backbone = random_backbone(sizes.arch, device, PASSES_DTYPE, cuda_graphs=cuda_graphs)
    costs, tables = bench_costs(backbone, prompt, response, sizes.repeats, sizes.rows)
    return tables, statements(costs)


def _memory(sizes: KitSizes, device: str, prompt: int, response: int) -> Measured:
    return {"memory": bench_memory(random_backbone(sizes.arch, device, PASSES_DTYPE), prompt, response)}, []


def _overhead(sizes: KitSizes, device: str) -> Measured:
    backbone = load_backbone("nano", device, PASSES_DTYPE)
    presets = methods_named(OVERHEAD)
    table = bench_methods(backbone, bench_prompts(backbone)[: sizes.problems], sizes.response, sizes.repeats, presets)
    return {"overhead": table}, []


def _training(sizes: KitSizes, device: str) -> Measured:
    return {"training": bench_training("nano", sizes.steps, OBJECTIVES, sizes.batch, device)}, []
