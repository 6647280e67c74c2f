"""Models on several devices: transformers places layers by a map, and accelerate's hooks in the
modules move tensors between devices. Such a model runs by its own layers (`HeadAtPositions.infer`),
one call at a time and without CUDA graphs.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from accelerate.hooks import AlignDevicesHook
from accelerate.utils import align_module_device
from torch import Tensor, nn

AUTO = "auto"  # the map that accelerate makes: GPUs first, then the memory of the CPU
OFFLOADED = ("cpu", "disk")

DeviceMap = str | Mapping[str, Any]


def main_device(device_map: DeviceMap) -> torch.device:
    """The kind of device that a model with this map computes on.

    Args:
        device_map: "auto", or devices by the names of modules, as in transformers.

    Raises:
        ValueError: the map is another text.
    """
    if isinstance(device_map, str):
        if device_map != AUTO:
            raise ValueError(
                f"device_map={device_map!r} must be {AUTO!r}, or a table of modules and devices;"
                " one device is device="
            )
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    on_cpu = {str(device) for device in device_map.values()} <= set(OFFLOADED)
    return torch.device("cpu" if on_cpu else "cuda")


def map_of(model: nn.Module) -> dict[str, str] | None:
    """The devices of a model's modules by name; None if all are on one device."""
    placed = getattr(model, "hf_device_map", None)
    if placed is None:
        return None
    return {
        name: f"cuda:{device}" if isinstance(device, int) else str(device)
        for name, device in placed.items()
    }


def input_device(model: Any) -> torch.device:
    """The device on which a model takes tokens and returns logits. Its weights may be elsewhere,
    and on no device at all while no call needs them."""
    hook = getattr(model, "_hf_hook", None)
    if isinstance(hook, AlignDevicesHook) and hook.execution_device is not None:
        return torch.device(hook.execution_device)
    device: torch.device = model.device
    return device


def placed_forward(module: nn.Module) -> Any:
    """The forward that accelerate put in the place of a module's own; None if it did not."""
    attributes = vars(module)
    return attributes.get("forward") if "_hf_hook" in attributes else None


def weights_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Iterate over all weights and their names; an offloaded one is loaded while it is yielded."""
    for name, module in model.named_modules():
        with align_module_device(module):
            for parameter, weight in module.named_parameters(recurse=False):
                yield f"{name}.{parameter}", weight
