"""The log of events: it replays to the tokens, and its sums are those of the windows, whatever
decoded."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from fakes import WHOLE, request_for, tiny_llada, trace_of
from window_sums import window_sums

from harness.records.files import TraceRecord, replay
from model_wrappers import Backbone, Decoded, decode
from model_wrappers.options import Options
from model_wrappers.request import Request
from model_wrappers.trace import KINDS, NO_WINDOW, EventLog, FullObserver, Window

SAVINGS = {"reuse_drafts": True, "skip_root_row": True, "adaptive_window": True}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((method, {}) for method in WHOLE),
    *((method, {"stop_at_eos": True}) for method in WHOLE),
    ("llada", {"cache": "dual"}),
    ("llada", {"remasking": "random"}),
    ("dcd", {"sequential": True}),
    ("fef", {"speculative": False}),
    ("fef", {"kernel": "uniform", "window": 4}),
    ("fef", {"steps": 3, **SAVINGS}),
    ("fef", {"temperature": 1.0, "seed": 3}),
    ("fef", {"verify": "two-stream", "anchor": 4, "skip_root_row": True}),
    ("fef", {"verify": "two-stream", "refresh_below": 0.9, "order": "confidence"}),
]


def traced(
    backbone: Backbone, prompt: torch.Tensor, method: Any, **options: Any
) -> tuple[Decoded, TraceRecord]:
    """A response of 16 tokens and its trace."""
    log = EventLog()
    out = decode(backbone, prompt, method, gen_length=16, observer=log, **options)
    return out, trace_of(log, out, backbone.mask_id)


@pytest.mark.parametrize(("method", "options"), VARIANTS, ids=str)
@pytest.mark.parametrize("block_length", [16, 8])
def test_a_trace_replays_to_the_tokens_and_sums_to_the_windows(
    tiny: Backbone, prompt: torch.Tensor, method: str, options: dict[str, Any], block_length: int
) -> None:
    out, trace = traced(tiny, prompt, method, block_length=block_length, **options)
    assert replay(trace).tolist() == out.tokens.tolist()
    for name, counted in window_sums(trace).items():
        assert counted.tolist() == [getattr(window, name) for window in out.trace.windows]
    known = ~np.isin(trace.column("kind"), [KINDS.index("filled"), KINDS.index("remasked")])
    assert ((trace.column("prob")[known] >= 0) & (trace.column("prob")[known] <= 1 + 1e-6)).all()


@pytest.mark.parametrize("method", WHOLE)
def test_forwards_rise_and_end_with_all_that_were_made(
    tiny: Backbone, prompt: torch.Tensor, method: str
) -> None:
    out, trace = traced(tiny, prompt, method)
    forwards = trace.column("forward").tolist()
    assert forwards == sorted(forwards) and forwards[0] >= 1 and forwards[-1] <= out.trace.forwards
    assert method in ("wino", "dcd") or forwards[-1] == out.trace.forwards


def test_a_window_of_a_trace_begins_where_its_record_does(
    tiny: Backbone, prompt: torch.Tensor
) -> None:
    out, trace = traced(tiny, prompt, "fef", window=4, draft=tiny_llada(50))
    windows, positions, steps = (trace.column(name) for name in ("window", "position", "step"))
    for number, window in enumerate(out.trace.windows):
        assert positions[windows == number].min() == window.start
        assert set(steps[windows == number].tolist()) == {window.step}


def test_rejected_drafts_have_both_probabilities(tiny: Backbone, prompt: torch.Tensor) -> None:
    _, trace = traced(tiny, prompt, "fef", window=4, draft=tiny_llada(50))
    kinds = [KINDS[kind] for kind in trace.column("kind")]
    targets = trace.column("target_prob").tolist()
    lost = ("rejected", "discarded")
    draft_of = [
        prob for prob, kind in zip(trace.column("prob"), kinds, strict=True) if kind in lost
    ]
    assert kinds.count("rejected") > 0 and len(targets) == len(draft_of)
    assert all(0 <= prob <= 1 for prob in [*targets, *draft_of])
    # Greedy: a draft is rejected because the target's best token is another one.
    first = targets[[kind for kind in kinds if kind in lost].index("rejected")]
    assert first <= 0.5


def test_steps_of_a_decoder_without_windows_count_its_commits(
    tiny: Backbone, prompt: torch.Tensor
) -> None:
    _, trace = traced(tiny, prompt, "llada", steps=4)
    assert sorted(set(trace.column("step").tolist())) == [0, 1, 2, 3]
    assert set(trace.column("window").tolist()) == {NO_WINDOW}


def test_a_decoder_from_outside_is_traced_without_doing_anything(
    tiny: Backbone, prompt: torch.Tensor
) -> None:
    def fill(request: Request, options: Options) -> None:
        for position in range(request.start, request.x_1L.shape[1]):
            probs_V = torch.softmax(
                request.backbone.logits(request.x_1L, torch.tensor([position]))[0, 0], -1
            )
            probs_V[request.mask_id] = 0
            request.commit([position], [int(probs_V.argmax())], [float(probs_V.max())], "unmasked")

    out, trace = traced(tiny, prompt, fill)
    assert replay(trace).tolist() == out.tokens.tolist() and trace.column(
        "forward"
    ).tolist() == list(range(1, 17))


@pytest.mark.parametrize("two", [torch.tensor(2), np.int64(2), 2.0])
def test_a_window_may_count_in_numbers_of_numpy_or_torch(two: Any) -> None:
    request = request_for(tiny_llada(), [4, 5])
    request.record(Window(0, 0, 0, 2, 1, two))
    assert (
        request.windows == [Window(0, 0, 0, 2, 1, 2)] and type(request.windows[0].committed) is int
    )


def test_a_window_commits_what_it_accepts() -> None:
    request = request_for(tiny_llada(), [4, 5])
    with pytest.raises(ValueError, match="accepts no more than it proposed or committed"):
        request.record(Window(0, 0, 0, 2, 2, 1))


def test_what_is_written_in_place_and_in_words_of_ones_own_is_traced(
    tiny: Backbone, prompt: torch.Tensor
) -> None:
    def careless(request: Request) -> None:
        response_L = request.x_1L[0, request.start :]
        response_L[:4] = 5
        request.commit(
            [request.start + 4, request.start + 5], [6, 7], [0.5, 0.25], ["guessed", "accepted"]
        )
        response_L[2] = request.mask_id
        response_L[2:] = 8
        request.record(Window(0, 0, 0, 1, 0, 1))  # a rejected draft, and no `reject`

    out, trace = traced(tiny, prompt, careless)
    assert replay(trace).tolist() == out.tokens.tolist() == [5, 5, *[8] * 14]
    assert [KINDS[kind] for kind in trace.column("kind")[:6]] == [*["unmasked"] * 5, "accepted"]


def test_a_response_that_is_decoded_again_is_logged_once(
    tiny: Backbone, prompt: torch.Tensor
) -> None:
    log = EventLog()
    lengths = []
    for _ in range(2):
        decode(tiny, prompt, "fef", gen_length=16, observer=log)
        lengths.append(len(log))
    assert isinstance(log, FullObserver) and lengths[0] == lengths[1] >= 16


# What an observer is told is all that happens
def test_an_observer_changes_nothing(tiny: Backbone, prompt: torch.Tensor) -> None:
    plain = decode(tiny, prompt, "fef", gen_length=16, temperature=1.0, seed=3)
    watched = decode(
        tiny, prompt, "fef", gen_length=16, temperature=1.0, seed=3, observer=EventLog()
    )
    assert (
        torch.equal(plain.tokens, watched.tokens) and plain.trace.windows == watched.trace.windows
    )


def test_a_window_counts_what_is_in_the_response(tiny: Backbone) -> None:
    # the model's last block has two positions more
    request = replace(request_for(tiny, [3, 39, 39, 39, 39]), end=3)
    window = Window(0, 0, 1, proposed=3, accepted=3, committed=3)
    request.record(window)  # scattered: where it stands is not known
    for number, positions in enumerate(([1, 2, 3], [4, 2, 1], [3, 4]), 1):
        request.record(replace(window, round=number), positions)
    assert request.windows == [window, Window(0, 1, 1, 2, 2, 2), Window(0, 2, 1, 2, 2, 2)]
