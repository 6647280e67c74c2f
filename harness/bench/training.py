"""Throughput of training: examples and tokens per second, by objective, positions per example and mask."""

import tempfile
from collections.abc import Collection
from functools import partial
from pathlib import Path

import pandas as pd
from msgspec import structs

from harness.records.environment import seconds_of
from harness.stats import median_ratio
from harness.train.data import Collator, CorruptedBatches, NanoExamples, PositionBatches
from harness.train.recipes import PRESETS
from harness.train.rows import TwoStreamBatches
from harness.train.run import start, training_arguments
from harness.train.trainer import DiffusionTrainer

MASKED = "fef, two-stream mask"
EVERY = "fef, all positions"
POSITIONS = {"fef, 1 position": 1, "fef, 4 positions": 4, "fef, 16 positions": 16, EVERY: None}
DISCARDED = 2


def bench_training(
    model: str, repeats: int, objectives: Collection[str] | None = None, batch: int | None = None, device: str = ""
) -> pd.DataFrame:
    """Forward and backward of a batch of the preset `nano`, without the optimizer's step: medians over `repeats`.

    objectives: those to measure (None: all). batch: examples (None: the preset's). device: "cpu", else a GPU where
    there is one. Every step has new examples, the same for all. Columns: rows, seconds, examples and tokens.
    """
    size, steps = batch or PRESETS["nano"].batch, repeats + DISCARDED
    trainer_arguments = {"use_cpu": True} if device == "cpu" else {}
    recipe = structs.replace(PRESETS["nano"], init=model, steps=steps, batch=size, trainer=trainer_arguments)
    backbone = start(recipe)
    network = backbone.model
    tokenizer, end = backbone.text_tokenizer(), backbone.family.end_of_turn
    examples = NanoExamples(tokenizer, size * steps, size, recipe.seed, end=end)
    corrupted = CorruptedBatches(backbone.eos_id, backbone.mask_id, recipe.seed)
    with tempfile.TemporaryDirectory() as folder:
        trainer = DiffusionTrainer(model=network, args=training_arguments(recipe, Path(folder), steps, steps))
        trainer.model_accepts_loss_kwargs = False
        trainer.current_gradient_accumulation_steps = 1
        collators: dict[str, Collator] = {
            "llada": corrupted,
            **{name: PositionBatches(corrupted, n) for name, n in POSITIONS.items()},
            MASKED: TwoStreamBatches(corrupted),
        }
        collators = {name: each for name, each in collators.items() if objectives is None or name in objectives}
        measured: dict[str, list[dict[str, float]]] = {name: [] for name in collators}
        for step in range(steps):
            drawn = [examples[index] for index in range(step * size, (step + 1) * size)]
            for name, collate in collators.items():
                inputs = collate(drawn)
                rows_BL = inputs["corrupted" if "corrupted" in inputs else "inputs"]
                seconds = seconds_of(partial(trainer.training_step, network, inputs), trainer.args.device)
                network.zero_grad()
                if step >= DISCARDED:
                    measured[name].append({"rows": len(rows_BL), "tokens": rows_BL.numel(), "seconds": seconds})
    rows = []
    for name, batches in measured.items():
        found = pd.DataFrame(batches)
        rows.append(
            {
                "objective": name,
                "rows a batch": found["rows"].mean(),
                "seconds a batch": found["seconds"].median(),
                "examples a second": median_ratio(size, found["seconds"]),
                "tokens a second": median_ratio(found["tokens"], found["seconds"]),
            }
        )
    return pd.DataFrame(rows)
