"""Ending a response at EOS: the same text for fewer forwards, with every decoder."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from fakes import ON_LOGITS, RandomConditionals, Unmasked, request_for

from model_wrappers import decode
from model_wrappers.request import Request, fill_after_eos

EOS, MASK = 2, 3
PROMPT = torch.tensor([1, 0])


WAYS: list[tuple[str, dict[str, Any]]] = [
    *((method, {}) for method in ON_LOGITS),
    *(("fef", {"speculative": on, "temperature": heat}) for on in (True, False) for heat in (0.0, 1.0)),
]


@pytest.mark.parametrize("block_length", [16, 4])
@pytest.mark.parametrize(("method", "options"), WAYS, ids=str)
def test_the_text_stays_and_costs_less(method: str, options: dict[str, Any], block_length: int) -> None:
    saved = 0
    for seed in range(6):
        backbone = Unmasked(real=3, seed=seed, eos_id=EOS)
        run = partial(decode, backbone, PROMPT, method, gen_length=16, block_length=block_length, seed=seed, **options)
        full, stopped = run(stop_at_eos=False), run(stop_at_eos=True)
        saved += full.trace.forwards - stopped.trace.forwards
        response = full.tokens.tolist()
        end = response.index(EOS) + 1 if EOS in response else len(response)
        assert stopped.tokens[:end].tolist() == response[:end]
        assert (stopped.tokens[stopped.tokens != full.tokens] == EOS).all() and MASK not in stopped.tokens.tolist()
    assert saved > 0 or (method, block_length) == ("block", 16)  # it ends with a block


def request(response: list[int]) -> Request:
    return request_for(RandomConditionals(real=3, eos_id=EOS), [*PROMPT.tolist(), *response], start=len(PROMPT))


@pytest.mark.parametrize(
    ("response", "filled"),
    [
        ([1, EOS, MASK, 0, MASK], [1, EOS, EOS, 0, EOS]),
        ([EOS, MASK, MASK], [EOS, EOS, EOS]),
        ([1, MASK, EOS, MASK], None),
        ([1, 0, MASK], None),
    ],
)
def test_masks_after_the_first_eos_are_filled_once_none_is_left_before_it(
    response: list[int], filled: list[int] | None
) -> None:
    made = request(response)
    assert fill_after_eos(made) == (filled is not None)
    assert made.x_1L[0, len(PROMPT) :].tolist() == (filled or response)
