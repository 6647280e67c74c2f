"""Decoders from outside the repository: every response begins with seeded global random states, and
must leave the weights as they were.

Their code is trusted. This guards against accidents: a global random state that other methods would
go on with, and weights that change.
"""

import random
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from harness.errors import UserError
from model_wrappers import Backbone

SAMPLE = 64  # about how many values of each tensor are compared, or all if it has fewer


@contextmanager
def contained(backbones: Collection[Backbone], where: str, seed: int) -> Iterator[None]:
    """Seed the random states of torch, numpy and Python for the block, and restore them after it.

    Unless the block raises an exception, samples of the weights are compared with those before it.

    Args:
        backbones: the models that the block uses.
        where: the name of what decodes in the block, for the message.
        seed: of the random states, of up to 64 bits.

    Raises:
        UserError: the block changed the weights of a model.
    """
    before = {backbone.name: _fingerprint(backbone) for backbone in backbones}
    states = random.getstate(), np.random.get_state()
    # Before CUDA is initialized there is no state to keep, and asking would initialize it.
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(gpus):
        torch.manual_seed(seed)
        random.seed(seed)
        # numpy refuses larger seeds, and an item's has 48 bits.
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
    changed = [
        backbone.name for backbone in backbones if _fingerprint(backbone) != before[backbone.name]
    ]
    if changed:
        raise UserError(
            f"{where}: the decoder changed the weights of {', '.join(changed)}, and every response"
            " after it would be decoded with them; let it put back what it changes"
        )


@torch.inference_mode()
def _fingerprint(backbone: Backbone) -> bytes:
    """The bytes of sampled values of all parameters and buffers, to compare for equality."""
    model = backbone.model
    # A device map may leave tensors on no device (meta) until they are needed.
    present = [tensor for tensor in (*model.parameters(), *model.buffers()) if not tensor.is_meta]
    samples = [_sample(tensor).to(backbone.device) for tensor in present]
    return torch.cat(samples).cpu().numpy().tobytes()


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Evenly spaced values of a tensor in the order of its memory, whatever its strides."""
    # `| 1` makes the step odd. Rows mostly have an even length: an even step may have a factor in
    # common with it, and would then read the same few columns of every row.
    step = tensor.numel() // SAMPLE | 1
    return tensor.as_strided((-(-tensor.numel() // step),), (step,)).float()
