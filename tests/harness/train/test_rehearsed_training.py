"""A training step on a rehearsed GPU: the loss and the gradients of the CPU."""

from pathlib import Path

import pytest
import torch
from rehearsal import RehearsedGPU
from torch import Tensor
from trainers import trainer

GENERATOR = torch.Generator().manual_seed(0)
CLEAN_BL = torch.randint(0, 30, (3, 24), generator=GENERATOR)
MASK = 39
CORRUPTED_BL = CLEAN_BL.masked_fill(torch.arange(24) % 2 == 1, MASK)
BATCHES: dict[str, dict[str, Tensor]] = {
    "llada": {
        "clean": CLEAN_BL,
        "corrupted": CORRUPTED_BL,
        "response": torch.arange(24).expand(3, -1) >= 8,
        "share": torch.full((3,), 0.5),
    },
    "fef": {
        "inputs": CORRUPTED_BL,
        "position": torch.tensor([9, 11, 13]),
        "target": CLEAN_BL[torch.arange(3), torch.tensor([9, 11, 13])],
        "weight": torch.ones(3),
        "tokens": torch.tensor(24),
    },
}


@pytest.mark.parametrize("objective", BATCHES)
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
def test_a_step_has_the_loss_and_the_gradients_of_the_cpu(objective: str, tmp_path: Path) -> None:
    batch = BATCHES[objective]
    here = trainer(tmp_path / "cpu")
    expected = here.compute_loss(here.model, batch)
    expected.backward()
    there = trainer(tmp_path / "gpu")
    with RehearsedGPU() as gpu, torch.enable_grad():
        gpu.place_module(there.model, trained=True)
        loss = there.compute_loss(
            there.model, {name: gpu.put(value) for name, value in batch.items()}
        )
        loss.backward()
        assert float(loss) == float(expected)
        for weight, moved in zip(here.model.parameters(), there.model.parameters(), strict=True):
            torch.testing.assert_close(moved.grad.cpu(), weight.grad)
