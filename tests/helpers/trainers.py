"""A trainer of a tiny random model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fakes import tiny_llada
from transformers import TrainingArguments

from harness.training.recipes import PRESETS
from harness.training.run import training_arguments
from harness.training.trainer import DiffusionTrainer


def trainer(folder: Path, arguments: TrainingArguments | None = None, **attributes: Any) -> DiffusionTrainer:
    arguments = arguments or training_arguments(PRESETS["nano"], folder, 10, 10)
    made = DiffusionTrainer(model=tiny_llada(0).model, args=arguments)
    made.model_accepts_loss_kwargs = False
    made.current_gradient_accumulation_steps = 1
    for name, value in attributes.items():
        setattr(made, name, value)
    return made
