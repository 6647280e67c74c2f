"""A trainer of a tiny random model, and what a model predicts of the rows of a batch."""

from pathlib import Path
from typing import Any

import torch
from fakes import tiny_llada
from transformers import TrainingArguments

from harness.train.recipes import PRESETS
from harness.train.run import DiffusionTrainer, training_arguments


def trainer(
    folder: Path, arguments: TrainingArguments | None = None, **attributes: Any
) -> DiffusionTrainer:
    arguments = arguments or training_arguments(PRESETS["nano"], folder, 10, 10)
    made = DiffusionTrainer(model=tiny_llada(0).model, args=arguments)
    made.model_accepts_loss_kwargs = False
    made.current_gradient_accumulation_steps = 1
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def logits_of(model: Any, rows: Any) -> torch.Tensor:
    """A model's logits (B, C, V) at the positions of rows with a mask of their own."""
    with torch.no_grad():
        output = model(
            input_ids=rows.inputs,
            attention_mask=rows.visible,
            position_ids=rows.position_ids,
            positions=rows.positions,
        )
    logits_BCV: torch.Tensor = output.logits
    return logits_BCV
