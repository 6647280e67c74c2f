"""A decoder from outside that leaves the models or the process other than they were is found."""

import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from fakes import tiny_llada

from harness.errors import UserError
from harness.runs.respond import unchanged
from model_wrappers import Backbone


@pytest.fixture
def own() -> Backbone:
    """A model that no other test has."""
    return tiny_llada(seed=5)


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    """The process as it was, after a test that changes it."""
    threads, states = torch.get_num_threads(), (torch.get_rng_state(), random.getstate(), np.random.get_state())
    yield
    torch.set_num_threads(threads)
    torch.set_default_dtype(torch.float32)
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])


def scaled(backbone: Backbone) -> None:
    with torch.inference_mode():
        next(backbone.model.parameters()).mul_(0.2)


def scaled_unseen(backbone: Backbone) -> None:
    last = [*backbone.model.parameters()][-1]
    last.data *= 0.2  # does not count as a write of the tensor


CHANGES: dict[str, Callable[[Backbone], object]] = {
    "the weights of": scaled,
    "the weights of .*": scaled_unseen,
    "the weights .*": lambda own: own.model.to(torch.bfloat16),
    "torch's number of threads": lambda own: torch.set_num_threads(torch.get_num_threads() + 1),
    "torch's default dtype": lambda own: torch.set_default_dtype(torch.float64),
    "torch's random state": lambda own: torch.rand(3),
    "Python's random state": lambda own: random.random(),
    "numpy's random state": lambda own: np.random.rand(),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_changes_is_named_with_the_response(what: str, own: Backbone) -> None:
    refused = pytest.raises(UserError, match=f"mine on gsm8k, item 3: the decoder leaves .*{what}")
    with refused, unchanged([own], "mine on gsm8k, item 3"):
        CHANGES[what](own)


def test_a_model_that_is_run_itself_is_named(own: Backbone) -> None:
    refused = pytest.raises(UserError, match=r"mine: the decoder runs .* itself, and its forwards are not counted")
    with refused, unchanged([own], "mine"):
        own.logits(torch.ones(1, 4, dtype=torch.long))
        with torch.inference_mode():
            own.model(torch.tensor([[1, 2, 3]]))
    with unchanged([own], ""):  # decoding changes nothing
        own.logits(torch.ones(1, 4, dtype=torch.long))
