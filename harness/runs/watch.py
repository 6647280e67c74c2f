"""A decoder from outside, watched: what it changes, other rows would be decoded with.

Read before and after each of its responses, outside of what is timed. Of weights samples are read, so this finds
accidents, not lies.
"""

import random
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch

from harness.errors import UserError
from model_wrappers import Backbone

SAMPLE = 64  # values of each tensor that are read, or somewhat more


@contextmanager
def unchanged(backbones: Collection[Backbone], who: str) -> Iterator[None]:
    """Raise UserError if the block leaves weights, random states, threads or dtype other than before, or calls a model
    around its backbone, whose forwards nobody would count.

    who: the method, suite and item that decode in it, for the message.
    """
    before = _state(backbones)
    with _runs_of(backbones) as around:
        yield
    uncounted = [name for name, runs in around.items() if runs > 0]
    if uncounted:
        raise UserError(
            f"{who}: the decoder runs {', '.join(uncounted)} itself, and its forwards are not counted; let it call "
            "request.backbone and request.draft alone"
        )
    after = _state(backbones)
    changed = [name for name in before if before[name] != after[name]]
    if changed:
        raise UserError(
            f"{who}: the decoder leaves {', '.join(changed)} other than before, and every row after it would be "
            "decoded with that; let it put back what it changes, and draw from request.sampler alone"
        )


@contextmanager
def _runs_of(backbones: Collection[Backbone]) -> Iterator[Counter[str]]:
    """By model, how often it ran in this block without a call of its backbone, as seen at its embedding."""
    around: Counter[str] = Counter()

    def count(name: str, runs: int, *_: Any) -> None:
        around[name] += runs

    with ExitStack() as stack:
        for backbone in (each for each in backbones if not each.graphed):  # a graph's replay passes no hook
            hook = partial(count, backbone.name, 1)
            stack.callback(backbone.model.get_input_embeddings().register_forward_pre_hook(hook).remove)
            stack.callback(lambda each, calls: count(each.name, calls - each.calls), backbone, backbone.calls)
        yield around


def _state(backbones: Collection[Backbone]) -> dict[str, Any]:
    state: dict[str, Any] = {
        "torch's number of threads": torch.get_num_threads(),
        "torch's default dtype": torch.get_default_dtype(),
        "torch's random state": torch.get_rng_state().numpy().tobytes(),
        "Python's random state": random.getstate(),
        "numpy's random state": np.random.get_state()[1].tobytes(),  # type: ignore[union-attr,index]
    }
    if torch.cuda.is_initialized():
        state["the GPU's random state"] = torch.cuda.get_rng_state().numpy().tobytes()
    return state | {f"the weights of {backbone.name}": _weights(backbone) for backbone in backbones}


@torch.inference_mode()
def _weights(backbone: Backbone) -> tuple[Any, ...]:
    """Where the tensors lie, their dtypes, and values of them."""
    tensors = dict(backbone.model.named_parameters())
    where = [(name, each.data_ptr(), each.dtype) for name, each in tensors.items()]
    return where, torch.cat([_sample(each).float() for each in tensors.values()]).cpu().numpy().tobytes()


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Values of a tensor where they lie, whatever its strides; a step of an odd number is seldom that of a column."""
    step = tensor.numel() // SAMPLE | 1
    return tensor.as_strided((-(-tensor.numel() // step),), (step,))
