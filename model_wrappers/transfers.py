"""Transfers between the host, where decoders decide, and the device, where the model is.

A call of the model takes one transfer to the device, of ids and positions, and one back, of the few
numbers that a decision needs. If each tensor were transferred by itself, decoders would pay for it
differently, and Speed would compare that.
"""

from typing import Any

import torch
from torch import Tensor


def to_host(*columns: Tensor) -> list[Tensor]:
    """Copies of small tensors on the CPU, in one transfer for which the host waits once."""
    if columns[0].device.type == "cpu":
        return list(columns)
    # float64 holds ids, truth values and confidences of every dtype exactly.
    together = torch.cat([column.double().flatten() for column in columns]).cpu()
    parts = together.split([column.numel() for column in columns])
    return [
        part.view(column.shape).to(column.dtype)
        for part, column in zip(parts, columns, strict=True)
    ]


def to_device(device: torch.device, *indices: Any) -> list[Any]:
    """Ids, positions and the like on a device, in one transfer that the host does not wait for.

    Args:
        device: the model's device.
        indices: LongTensors of any shapes; None stays None.
    """
    elsewhere = [index for index in indices if index is not None and index.device != device]
    if not elsewhere:
        return list(indices)
    together = torch.cat([index.flatten() for index in elsewhere]).to(device, non_blocking=True)
    parts = iter(together.split([index.numel() for index in elsewhere]))
    moved = {
        id(index): part.view(index.shape) for index, part in zip(elsewhere, parts, strict=True)
    }
    return [moved.get(id(index), index) for index in indices]
