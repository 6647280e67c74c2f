"""The tables of the benchmark, by what was asked for."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

from harness.costs.architectures import ARCHITECTURES, random_backbone
from harness.costs.costs import ROWS, bench_costs, statements
from harness.costs.decoders import bench_forwards, bench_methods, bench_prompts
from harness.costs.memory import bench_memory
from harness.costs.prediction import assumptions, fef_items, predicted_speedups
from harness.costs.recording import bench_recording
from harness.costs.tracing import bench_tracing
from harness.costs.training import bench_training
from harness.errors import UserError
from harness.methods.selection import methods_named
from harness.plugins import load_for
from harness.records.store import read_run
from model_wrappers import Backbone, load_backbone

ROOT = Path(__file__).resolve().parents[2]
INSTRUMENT_METHODS = "llada,llada/2,llada/4,llada/8"


def measure(asked: argparse.Namespace) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """The tables that were asked for by name, and what they say in words.

    Raises UserError, before anything is measured, for options that clash and for numbers that cannot be used.
    """
    for name in ("prompt", "response", "repeats", "limit"):
        if getattr(asked, name) < 1:
            raise UserError(f"--{name} {getattr(asked, name)} must be at least 1")
    if asked.out is not None and not os.access(asked.out.parent, os.W_OK):
        raise UserError(f"--out {asked.out} cannot be written: {asked.out.parent} is no folder to write to")
    if not asked.costs and (asked.rows or asked.record):
        raise UserError("--rows and --record are for --costs; add it")
    if asked.arch and (asked.instrument or asked.training):
        raise UserError("--arch is for the cost of passes; leave out --instrument and --training")
    if asked.costs:
        return cost_tables(asked)
    if asked.instrument:
        return {"instrument": instrument_check(asked.model, asked.limit).reset_index()}, []
    if asked.training:
        return {"training": bench_training(asked.model, asked.repeats)}, []
    if asked.recording is not None:
        return bench_recording(asked.recording), []
    backbone = backbone_of(asked)
    size = (asked.response, asked.repeats)
    load_for(asked.methods)
    if asked.tracing:
        return {"tracing": bench_tracing(backbone, bench_prompts(backbone), *size, methods_named(asked.methods))}, []
    return {
        "forwards": bench_forwards(backbone, asked.prompt, *size),
        "methods": bench_methods(backbone, bench_prompts(backbone), *size, methods_named(asked.methods)),
    }, []


def instrument_check(model: str, limit: int) -> pd.DataFrame:
    """LLaDA's accuracy in percent at 1, 2, 4 and 8 tokens a step, per suite, on generated dev problems."""
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        command = [sys.executable, str(ROOT / "harness" / "run.py"), "--suite", "gsm8k,math,humaneval,mbpp,lists"]
        command += ["--methods", INSTRUMENT_METHODS, "--model", model, "--data", "generated-dev"]
        done = subprocess.run([*command, "--limit", str(limit), "--out", str(run)], check=False)
        if done.returncode != 0:
            raise UserError("the instrument check could not run; see the message above")
        items = read_run(run).items
    table = 100 * items.pivot_table(index="suite", columns="method", values="correct", aggfunc="mean", sort=False)
    table = table.astype(float)[INSTRUMENT_METHODS.split(",")]
    table.loc["mean"] = table.mean()
    return table


def cost_tables(asked: argparse.Namespace) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """The tables of --costs, and what they say in words."""
    run = None if asked.record is None else read_run(asked.record)
    items = None if run is None else fef_items(run)  # before minutes are spent on measuring
    rows = ROWS if asked.rows is None else row_counts(asked.rows)
    backbone = backbone_of(asked)
    costs, tables = bench_costs(backbone, asked.prompt, asked.response, asked.repeats, rows)
    tables["memory"] = bench_memory(backbone, asked.prompt, asked.response)
    notes = statements(costs)
    if run is not None and items is not None:
        tables["speedups"] = predicted_speedups(items, costs)
        notes.append(assumptions(run, costs))
    return tables, notes


def row_counts(text: str) -> list[int]:
    """Numbers separated by commas. Raises UserError for anything else."""
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise UserError(f"--rows {text} must be numbers separated by commas, such as 1,2,4") from None


def backbone_of(asked: argparse.Namespace) -> Backbone:
    """The model that was asked for. Raises UserError where --model, --arch and what belongs to it do not fit."""
    if asked.arch is None:
        if asked.random_weights or asked.layers is not None:
            raise UserError(f"--random-weights and --layers need --arch; valid: {', '.join(ARCHITECTURES)}")
        return load_backbone(asked.model, asked.device, asked.dtype, compiled=asked.compile, cuda_graphs=asked.graphs)
    if asked.model != "nano" or not asked.random_weights:
        raise UserError(f"--arch {asked.arch} has no weights: give --random-weights with it, and no --model")
    return random_backbone(asked.arch, asked.device, asked.dtype, asked.layers, asked.graphs)
