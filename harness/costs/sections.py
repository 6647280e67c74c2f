"""The tables of the benchmark, by its options."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pandas as pd

from harness.costs.architectures import ARCHITECTURES, random_backbone
from harness.costs.costs import ROWS, bench_costs, statements
from harness.costs.decoders import bench_forwards, bench_methods, bench_prompts
from harness.costs.estimate import DEVICES, bench_estimate
from harness.costs.memory import bench_memory
from harness.costs.throughput import bench_throughput
from harness.costs.training import bench_training
from harness.errors import UserError
from harness.methods.selection import methods_named
from harness.plugins import load_for
from harness.suites.registry import suites_named
from model_wrappers import Backbone, load_backbone
from model_wrappers.batches import in_batch

if TYPE_CHECKING:
    from harness.bench import BenchOptions


def measure(options: BenchOptions) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """The tables by name, and what they say in words.

    Raises UserError, before anything is measured, for options that clash, and for what is not known.
    """
    if options.out is not None and not os.access(options.out.parent, os.W_OK):
        raise UserError(f"--out {options.out} cannot be written: {options.out.parent} is no folder to write to")
    if not options.costs and options.rows:
        raise UserError("--rows is for --costs; add it")
    if options.arch and options.training:
        raise UserError("--arch is for the cost of passes; leave out --training")
    if options.costs:
        return cost_tables(options)
    if options.training:
        return {"training": bench_training(options.model, options.repeats)}, []
    if options.estimate not in (None, *DEVICES):
        raise UserError(f"--estimate {options.estimate}: nothing is known of it; valid: {', '.join(DEVICES)}")
    load_for(options.methods)
    suites, presets = [*suites_named(options.suite)], methods_named(options.methods)
    if options.throughput:
        backbone = load_backbone(options.model, options.device, options.dtype)
        in_batch(backbone)  # refused here if it decodes no batches
        return {"throughput": bench_throughput(backbone, suites, options.limit, options.repeats, presets)}, []
    if options.estimate is not None:
        backbone = load_backbone(options.model)
        return {"estimate": bench_estimate(backbone, options.estimate, suites, options.limit, presets)}, []
    backbone = backbone_of(options)
    size = (options.response, options.repeats)
    return {
        "forwards": bench_forwards(backbone, options.prompt, *size),
        "methods": bench_methods(backbone, bench_prompts(backbone), *size, presets),
    }, []


def cost_tables(options: BenchOptions) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """The tables of --costs, and what they say in words."""
    rows = ROWS if options.rows is None else row_counts(options.rows)
    backbone = backbone_of(options)
    costs, tables = bench_costs(backbone, options.prompt, options.response, options.repeats, rows)
    if backbone.device.type == "cuda":
        tables["memory"] = bench_memory(backbone, options.prompt, options.response)
    return tables, statements(costs)


def row_counts(text: str) -> list[int]:
    """Numbers separated by commas. Raises UserError for anything else."""
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise UserError(f"--rows {text} must be numbers separated by commas, such as 1,2,4") from None


def backbone_of(options: BenchOptions) -> Backbone:
    """The model of the options. Raises UserError where --model, --arch and what belongs to it do not fit.

    Also for a block model, whose calls are no passes of a whole sequence.
    """
    if options.arch is None:
        if options.random_weights or options.layers is not None:
            raise UserError(f"--random-weights and --layers need --arch; valid: {', '.join(ARCHITECTURES)}")
        backbone = load_backbone(options.model, options.device, options.dtype, cuda_graphs=options.graphs)
        if backbone.blocks is not None:
            raise UserError(
                f"--model {options.model} attends in blocks of {backbone.blocks.length}, and whole sequences are "
                "measured here: time its methods in a run (harness/run.py)"
            )
        return backbone
    if options.model != "nano" or not options.random_weights:
        raise UserError(f"--arch {options.arch} has no weights: give --random-weights with it, and no --model")
    return random_backbone(options.arch, options.device, options.dtype, options.layers, options.graphs)
