"""Whether a decoder from outside leaves the process as it found it: what it changes, other rows would be decoded with.

Read before and after each of its responses, outside of what is timed. Weights are looked at in samples, so this
finds accidents, not lies.
"""

import random
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from harness.errors import UserError
from model_wrappers import Backbone

SAMPLE = 64  # values of each tensor that are looked at, or somewhat more


@contextmanager
def unchanged(backbones: Collection[Backbone], who: str) -> Iterator[None]:
    """Raise UserError if the models or the process differ behind the block from what they were before it.

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
    """By model, how often it ran in this block without a call of its backbone; of what is not compiled or in a graph.

    A model's run is seen at its embedding.
    """
    around: Counter[str] = Counter()

    def count(name: str, runs: int) -> None:
        around[name] += runs

    with ExitStack() as stack:
        for backbone in backbones:
            if backbone.compiled or backbone.graphed:
                continue
            hook = partial(lambda name, *_: count(name, 1), backbone.name)
            stack.callback(backbone.model.get_input_embeddings().register_forward_pre_hook(hook).remove)
            stack.callback(lambda each, calls: count(each.name, calls - each.calls), backbone, backbone.calls)
        yield around


def _state(backbones: Collection[Backbone]) -> dict[str, Any]:
    state: dict[str, Any] = {
        "torch's number of threads": torch.get_num_threads(),
        "torch's default dtype": torch.get_default_dtype(),
        "torch's deterministic algorithms": (
            torch.are_deterministic_algorithms_enabled(),
            torch.backends.cudnn.deterministic,
            torch.backends.cudnn.benchmark,
        ),
        "torch's precision of products": torch.get_float32_matmul_precision(),
        "torch's random state": torch.get_rng_state().numpy().tobytes(),
        "Python's random state": random.getstate(),
        "numpy's random state": np.random.get_state()[1].tobytes(),  # type: ignore[union-attr,index]
    }
    if torch.cuda.is_initialized():
        state["the GPU's random state"] = torch.cuda.get_rng_state().numpy().tobytes()
    for backbone in backbones:
        plain = {name: value for name, value in vars(backbone).items() if isinstance(value, int | str | None)}
        state[f"{backbone.name}, its ids or settings,"] = {name: plain[name] for name in plain if name != "calls"}
        state[f"the weights of {backbone.name}"] = _weights(backbone)
        if backbone.tokenizer is not None:
            state[f"what the tokenizer of {backbone.name} says"] = backbone.tokenizer.decode([*range(SAMPLE)])
    return state


_samples: WeakKeyDictionary[Any, tuple[list[int], list[torch.Tensor]]] = WeakKeyDictionary()  # by model


@torch.inference_mode()
def _weights(backbone: Backbone) -> tuple[Any, ...]:
    tensors = dict(backbone.model.named_parameters())
    told = [(name, each.data_ptr(), each.dtype, each.shape, _version(each)) for name, each in tensors.items()]
    places = [each[1] for each in told]
    known, views = _samples.get(backbone.model, ([], []))
    if known != places:  # making the views takes longer than reading them
        views = [_sample(each) for each in tensors.values()]
        _samples[backbone.model] = places, views
    return torch.cat(views).float().cpu().numpy().tobytes() if views else b"", told


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Values of a tensor where they lie, whatever its strides; a step of an odd number is seldom that of a column."""
    step = tensor.numel() // SAMPLE | 1
    return tensor.as_strided((-(-tensor.numel() // step),), (step,))


def _version(tensor: torch.Tensor) -> int:
    """How often it was written in place, as far as torch counts."""
    return 0 if tensor.is_inference() else tensor._version
