"""Decoders fill the response through their request alone: what an observer is told is all that happens."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from fakes import RandomConditionals, request_for

from model_wrappers import Backbone, decode
from model_wrappers.events import KINDS, EventLog
from model_wrappers.trace import Window


def test_an_observer_changes_nothing(tiny: Backbone, prompt: torch.Tensor) -> None:
    plain = decode(tiny, prompt, "fef", gen_length=16, temperature=1.0, seed=3)
    watched = decode(tiny, prompt, "fef", gen_length=16, temperature=1.0, seed=3, observer=EventLog())
    assert torch.equal(plain.tokens, watched.tokens) and plain.trace.windows == watched.trace.windows


@pytest.mark.parametrize("counts", [{"proposed": -16}, {"accepted": 5}, {"committed": -1}, {"start": -1}])
def test_a_window_that_cannot_be_is_refused(tiny: Backbone, counts: dict[str, int]) -> None:
    window = Window(**{"step": 0, "round": 0, "start": 0, "proposed": 4, "accepted": 2, "committed": 3} | counts)
    with pytest.raises(ValueError, match="cannot be"):
        request_for(tiny, [3, 39, 39]).record(window)


def test_a_window_counts_what_is_in_the_response(tiny: Backbone) -> None:
    request = replace(request_for(tiny, [3, 39, 39, 39, 39]), end=3)  # the model's last block has two positions more
    window = Window(0, 0, 1, proposed=3, accepted=3, committed=3)
    request.record(window)  # scattered: where it stands is not known
    request.record(window, [1, 2, 3])
    request.record(window, [4, 2, 1])
    request.record(window, [3, 4])
    assert request.windows == [window, Window(0, 0, 1, 2, 2, 2), Window(0, 0, 1, 2, 2, 2)]


def test_a_filled_token_has_no_probability() -> None:
    log = EventLog()
    request = replace(request_for(RandomConditionals(real=3), [0, 3, 3, 3], start=1), observer=log)
    request.commit([1, 3], 2, None, "filled")
    request.remask([1])
    assert [KINDS[kind] for kind in log.kind] == ["filled", "filled", "remasked"] and all(map(math.isnan, log.prob))
    assert (log.position, log.token) == ([0, 2, 0], [2, 2, 3]) and request.x_1L.tolist() == [[0, 3, 3, 2]]
