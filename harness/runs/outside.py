"""Decoders from outside the repository: each response begins with random states of its own, and
leaves the weights.

Their code is trusted. This finds accidents: a global random state that others would go on with,
weights that change.
"""

import random
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from harness.errors import UserError
from model_wrappers import Backbone

SAMPLE = 64  # values of each tensor that are compared, or somewhat more


@contextmanager
def contained(backbones: Collection[Backbone], who: str, seed: int) -> Iterator[None]:
    """Seed the random states of torch, numpy and Python for the block, and put them back after it.

    Args:
        who: what decodes in the block, for the message.

    Raises:
        UserError: the block changed the weights of a model.
    """
    before = {backbone.name: _weights(backbone) for backbone in backbones}
    states = random.getstate(), np.random.get_state()
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(gpus):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
    changed = [
        backbone.name for backbone in backbones if _weights(backbone) != before[backbone.name]
    ]
    if changed:
        raise UserError(
            f"{who}: the decoder changed the weights of {', '.join(changed)}, and every response"
            " after it would be decoded with them; let it put back what it changes"
        )


@torch.inference_mode()
def _weights(backbone: Backbone) -> bytes:
    """Values of all parameters and buffers, a sample of each; not of those that a device map has
    put on no device until they are needed."""
    model = backbone.model
    present = [tensor for tensor in (*model.parameters(), *model.buffers()) if not tensor.is_meta]
    samples = [_sample(tensor).to(backbone.device) for tensor in present]
    return torch.cat(samples).cpu().numpy().tobytes()


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Values of a tensor where they lie, whatever its strides; a step of an odd number is seldom
    that of a column."""
    step = tensor.numel() // SAMPLE | 1
    return tensor.as_strided((-(-tensor.numel() // step),), (step,)).float()
