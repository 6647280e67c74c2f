"""Decoders fill the response through their request alone: what an observer is told is all that happens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from fakes import WHOLE, RandomConditionals, request_for, tiny_llada

from model_wrappers import Backbone, decode
from model_wrappers.trace import How, Window


class Replay:
    """An observer that fills a response of its own."""

    def __init__(self, length: int, mask_id: int) -> None:
        self.response = [mask_id] * length
        self.hows: list[How] = []
        self.probs: list[float] = []
        self.remasks = 0

    def committed(
        self, positions: Sequence[int], tokens: Sequence[int], probs: Sequence[float], how: Sequence[How]
    ) -> None:
        for position, token in zip(positions, tokens, strict=True):
            self.response[position] = token
        self.hows += how
        self.probs += probs

    def remasked(self, positions: Sequence[int], tokens: Sequence[int]) -> None:
        self.remasks += 1
        for position, token in zip(positions, tokens, strict=True):
            self.response[position] = token


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((method, {}) for method in WHOLE),
    *((method, {"stop_at_eos": True}) for method in WHOLE),
    ("llada", {"remasking": "random"}),
    ("dcd", {"sequential": True}),
    ("fef", {"speculative": False}),
    ("fef", {"kernel": "uniform"}),
    ("fef", {"steps": 3, "reuse_drafts": True, "skip_root_row": True, "adaptive_window": True}),
    ("fef", {"verify": "two-stream", "anchor": 4}),
]


@pytest.mark.parametrize(("method", "options"), VARIANTS, ids=lambda value: str(value))
@pytest.mark.parametrize("block_length", [16, 8])
def test_what_an_observer_is_told_gives_the_response(
    tiny: Backbone, prompt: torch.Tensor, method: str, options: dict[str, Any], block_length: int
) -> None:
    replay = Replay(16, tiny.mask_id)
    lengths = {"gen_length": 16, "block_length": block_length}
    out = decode(tiny, prompt, method, observer=replay, **lengths, **options)
    assert replay.response == out.tokens.tolist()
    assert set(replay.hows) <= set(get_args(How))
    given = [prob for prob, how in zip(replay.probs, replay.hows, strict=True) if how != "filled"]
    assert all(0 <= prob <= 1 + 1e-6 for prob in given)


def test_windows_and_ways_of_fef_agree(tiny: Backbone, prompt: torch.Tensor) -> None:
    replay = Replay(16, tiny.mask_id)
    out = decode(tiny, prompt, "fef", gen_length=16, window=4, draft=tiny_llada(50), observer=replay)
    accepted = sum(window.accepted for window in out.trace.windows)
    committed = sum(window.committed for window in out.trace.windows)
    assert replay.hows.count("accepted") == accepted and len(replay.hows) == committed
    assert replay.hows.count("corrected") == committed - accepted > 0 and replay.remasks == 1


def test_an_observer_changes_nothing(tiny: Backbone, prompt: torch.Tensor) -> None:
    plain = decode(tiny, prompt, "fef", gen_length=16, temperature=1.0, seed=3)
    watched = decode(tiny, prompt, "fef", gen_length=16, temperature=1.0, seed=3, observer=Replay(16, tiny.mask_id))
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
    replay = Replay(3, 3)
    request = request_for(RandomConditionals(real=3), [0, 3, 3, 3], start=1)
    watched = type(request)(**{**vars(request), "observer": replay})
    watched.commit([1, 3], 2, None, "filled")
    assert replay.response == [2, 3, 2] and all(map(math.isnan, replay.probs)) and replay.hows == ["filled"] * 2
    watched.remask([1])
    assert replay.response == [3, 3, 2] and watched.x_1L.tolist() == [[0, 3, 3, 2]]
