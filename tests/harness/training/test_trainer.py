"""The trainer: its learning rate, a batch in pieces, and a loss that is no number."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from trainers import trainer

from harness.errors import UserError
from harness.training.objectives import position_rows
from harness.training.recipes import PRESETS
from harness.training.run import training_arguments


def test_the_learning_rate_is_the_papers_at_every_step(tmp_path: Path) -> None:
    steps, paper = 1000, PRESETS["paper"]
    made = trainer(tmp_path, training_arguments(paper, tmp_path, steps, steps))
    made.create_optimizer_and_scheduler(steps)
    assert made.lr_scheduler is not None and made.optimizer is not None
    for step in range(steps):
        if step < 50:  # the paper does not say from where; get_wsd_schedule warms up from its lowest rate
            expected = 1e-5 * (0.1 + 0.9 * step / 50)
        elif step < 900:
            expected = 1e-5
        else:
            expected = 1e-5 * (1 - 0.9 * (step - 900) / 100)
        assert made.lr_scheduler.get_last_lr()[0] == pytest.approx(expected, rel=1e-9), step
        made.optimizer.step()
        made.lr_scheduler.step()
    assert made.lr_scheduler.get_last_lr()[0] == pytest.approx(1e-6)


def gradients(folder: Path, rows_per_forward: int) -> tuple[float, list[torch.Tensor]]:
    clean = torch.arange(1, 17).reshape(2, 8)
    corrupted = clean.clone()
    corrupted[:, 3:] = 39
    rows = position_rows(clean, corrupted, None, torch.Generator())
    arguments = training_arguments(replace(PRESETS["nano"], trainer={"bf16": False}), folder, 10, 10)
    made = trainer(folder, arguments, rows_per_forward=rows_per_forward)
    loss = made.training_step(made.model, rows._asdict() | {"tokens": torch.tensor(10)})
    return float(loss), [p.grad for p in made.model.parameters() if p.grad is not None]


def test_a_batch_in_pieces_has_the_gradient_of_the_whole(tmp_path: Path) -> None:
    whole, gradient = gradients(tmp_path, 64)
    pieces, in_pieces = gradients(tmp_path, 3)
    assert pieces == pytest.approx(whole, rel=1e-5)
    for one, other in zip(gradient, in_pieces, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def test_a_loss_that_is_no_number_ends_the_training_with_a_line(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    rows = position_rows(torch.tensor([[1, 2]]), torch.tensor([[1, 39]]), None, torch.Generator())
    broken = rows._asdict() | {"weight": torch.tensor([float("nan")]), "tokens": torch.tensor(1)}
    with pytest.raises(UserError, match="became nan at step 0"):
        made.training_step(made.model, broken)


@pytest.mark.parametrize(
    "arguments",
    [
        {"no_such_thing": 1},
        {"max_grad_norm": "much"},
        {"gradient_checkpointing": 5},
        {"dataloader_num_workers": 1.5},
        {"max_grad_norm": [1]},
        {"seed": None},
        {"logging_nan_inf_filter": {}},
    ],
)
def test_unknown_training_arguments_and_other_types_are_refused(tmp_path: Path, arguments: dict[str, object]) -> None:
    with pytest.raises(UserError, match=f"--trainer .*{next(iter(arguments))}"):
        training_arguments(replace(PRESETS["nano"], trainer=arguments), tmp_path, 10, 10)


def test_training_arguments_of_the_documentation_are_taken(tmp_path: Path) -> None:
    asked = {"gradient_checkpointing": True, "max_grad_norm": 1, "save_total_limit": None, "report_to": "none"}
    made = training_arguments(replace(PRESETS["nano"], trainer=asked), tmp_path, 10, 10)
    assert made.gradient_checkpointing and made.max_grad_norm == 1
