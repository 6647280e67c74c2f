"""The seconds that a response spends in draws are told apart from the decoder's."""

import random
import time
from typing import Any

import pytest
import torch
from fakes import tiny_llada
from rehearsal import RehearsedGPU

from harness.audit.oracle import ProbeSampler
from model_wrappers import Backbone, decode
from model_wrappers.clock import DrawTimer
from model_wrappers.costs import costs_of
from model_wrappers.sampling import Sampler

CPU = torch.device("cpu")
SLOW = 0.005  # seconds of a draw


class SlowSampler(Sampler):
    """A sampler in the place of the usual one, which takes its time and counts its draws."""

    def __init__(self) -> None:
        self.count = 0

    def tokens(self, probs_NV: torch.Tensor, needed_1: torch.Tensor | None = None) -> torch.Tensor:
        if probs_NV.shape[1] > 2:  # of tokens; a kernel draws which of them it corrupts
            self.count += 1
            time.sleep(SLOW)
        return probs_NV.argmax(-1)

    def accepted(self, ratio_W: torch.Tensor) -> torch.Tensor:
        return torch.tensor([len(ratio_W)])


@pytest.mark.parametrize(
    "options", [{"method": "llada"}, {"method": "fef", "window": 4}, {"method": "ssd"}]
)
def test_nothing_is_a_draw_at_temperature_0(tiny: Backbone, options: dict[str, Any]) -> None:
    out = decode(tiny, [3, 4], gen_length=8, **options)
    assert out.trace.draw_seconds is None
    assert "draw_seconds" not in costs_of(tiny, torch.tensor([3, 4]), out)


@pytest.mark.parametrize(
    "options", [{"method": "llada"}, {"method": "fef", "window": 4, "speculative": False}]
)
def test_sampled_tokens_are_draws(tiny: Backbone, options: dict[str, Any]) -> None:
    sampler = SlowSampler()
    trace = decode(tiny, [3, 4], gen_length=8, temperature=1.0, sampler=sampler, **options).trace
    assert trace.draw_seconds is not None
    assert sampler.count * SLOW <= trace.draw_seconds < trace.seconds


def test_drafts_and_corrections_are_draws(tiny: Backbone) -> None:
    sampler = SlowSampler()
    trace = decode(tiny, [3, 4], "fef", gen_length=8, temperature=1.0, sampler=sampler).trace
    assert trace.draw_seconds is not None and sampler.count >= 2
    assert sampler.count * SLOW <= trace.draw_seconds < trace.seconds


def test_the_draws_of_an_earlier_response_are_not_counted_again(tiny: Backbone) -> None:
    sampler = SlowSampler()
    options: dict[str, Any] = {"gen_length": 4, "temperature": 1.0, "sampler": sampler}
    decode(tiny, [3, 4], "llada", **options)
    trace = decode(tiny, [3, 4], "llada", **options).trace
    assert trace.draw_seconds is not None and trace.draw_seconds < trace.seconds


def test_a_sampler_that_replaces_methods_alone_is_timed_too() -> None:
    sampler = ProbeSampler(random.Random(0))
    trace = decode(
        tiny_llada(), [3, 4], "fef", gen_length=4, temperature=1.0, sampler=sampler
    ).trace
    assert trace.draw_seconds is not None and trace.draw_seconds > 0


def test_a_draw_within_another_counts_once() -> None:
    timer = DrawTimer(CPU)
    start_time = time.perf_counter()
    with timer, timer:
        time.sleep(SLOW)
    elapsed = time.perf_counter() - start_time
    assert SLOW <= timer.total() <= elapsed


class Event:
    """An event of a GPU's clock, which ticks at every event; it must not be read while decoding."""

    ticks = 0
    may_be_read = False

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self, stream: Any) -> None:
        Event.ticks += 1
        self.tick = Event.ticks

    def elapsed_time(self, other: "Event") -> float:
        assert Event.may_be_read
        return 1000.0 * (other.tick - self.tick)


def test_on_a_gpu_draws_lie_between_events_that_are_read_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    timer = DrawTimer(torch.device("cuda", 0))
    for _ in range(3):
        with timer, timer:
            pass
    monkeypatch.setattr(Event, "may_be_read", True)
    assert timer.total() == 3.0


def test_draws_on_a_gpu_make_the_host_wait_no_more(tiny: Backbone) -> None:
    def waits(temperature: float) -> int:
        with RehearsedGPU() as gpu:
            placed = gpu.place(tiny_llada())
            decode(placed, [3, 4], "llada", gen_length=4, temperature=temperature)
        return sum(gpu.waits.values())

    assert waits(1.0) == waits(0.0)
