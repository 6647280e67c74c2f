"""Calls of a few shapes, as CUDA graphs need them, run without a graph: what fills them up changes
nothing."""

from contextlib import nullcontext
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from families import NAMES, kept_layers, random_model, tiny

from model_wrappers import Backbone, decode, load_backbone
from model_wrappers.backbones import graphs
from model_wrappers.backbones.graphs import (
    GraphedForward,
    Run,
    captured,
    power_bucket,
    tokens_bucket,
)
from model_wrappers.backbones.plain import ModelForward
from model_wrappers.backbones.protocol import KeyValues, Write

DENSE = [name for name in NAMES if name != "llada_moe"]
CLOSE = {"atol": 2e-5, "rtol": 1e-4}
LLADA: dict[str, Any] = {"method": "llada", "block_length": 8}
DECODERS: list[Any] = [
    {"verify": "two-stream", "refresh_below": 0.7, "order": "confidence"},
    LLADA | {"cache": "dual"},
    {"method": "flash", "window": 4, "tracked": 8, "masked": 8},  # whose calls take no graphs
    *(
        pytest.param(options, marks=pytest.mark.slow)
        for options in (
            LLADA,
            LLADA | {"cache": "prefix"},
            {"method": "dcd"},
            {"method": "wino"},
            {"verify": "full"},
        )
    ),
]


def same_memory(run: Run, device: torch.device) -> Run:
    """As a graph: the result is in the same memory every time, and the next call writes over it."""
    output = run()

    def replay() -> torch.Tensor:
        return output.copy_(run())

    return replay


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "captured", same_memory)


def plain_of(name: str) -> ModelForward:
    forward = ModelForward(random_model(name, 5).eval())
    assert forward.plain is not None
    return forward


def ids(count: int) -> torch.Tensor:
    return torch.randint(0, 38, (1, count), generator=torch.Generator().manual_seed(count))


CALL = (ids(12), torch.arange(12)[None], None, None, None)


def test_buckets_hold_what_they_are_for_and_are_few() -> None:
    counts = range(1, 513)
    assert all(count <= tokens_bucket(count) <= max(16, count + 31) for count in counts)
    assert all(count <= power_bucket(count, 8) < max(9, 2 * count) for count in counts)
    assert len({tokens_bucket(count) for count in counts}) == 17
    assert {power_bucket(count, 8) for count in counts} == {8, 16, 32, 64, 128, 256, 512}


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("count", [1, 16, 17, 50])
@pytest.mark.parametrize("causal", [False, True])
def test_filled_up_sequences_have_the_same_logits(name: str, count: int, causal: bool) -> None:
    forward = plain_of(name)
    mask = torch.ones(count, count, dtype=torch.bool).tril()[None, None] if causal else None
    for read in (None, torch.tensor([count - 1]), torch.tensor([[0, count // 2]])):
        call = (ids(count), torch.arange(count)[None], mask, None, read)
        with torch.inference_mode():
            torch.testing.assert_close(GraphedForward(forward)(*call), forward(*call), **CLOSE)


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("write", ["append", "replace", "none"])
def test_filled_up_pieces_have_the_same_logits_and_keep_the_same(name: str, write: Write) -> None:
    forward, given = plain_of(name), list[list[torch.Tensor]]()
    piece_N, whole = torch.tensor([4, 9, 2]), 20
    visible_NK = torch.rand(3, whole if write == "replace" else whole + 3) > 0.4
    visible_NK[:, 0] = True
    with torch.inference_mode():
        for way in (forward, GraphedForward(forward)):
            cache, logits = KeyValues(), list[torch.Tensor]()
            cache.begin(whole)
            logits.append(way(ids(whole), torch.arange(whole)[None], None, cache, None))
            cache.end()
            for mask in (visible_NK[None, None], None):
                cache.begin(3, write, piece_N)
                logits.append(way(ids(3), piece_N[None], mask, cache, torch.tensor([0, 2])))
                cache.end()
                if write == "append":
                    cache.forget(3)
            given.append([*logits, *(kept for pair in kept_layers(cache) for kept in pair)])
    for theirs, ours in zip(*given, strict=True):
        torch.testing.assert_close(ours, theirs, **CLOSE)


def graphed(nano: Backbone) -> tuple[Backbone, GraphedForward]:
    """nano in calls of a few shapes, without a GPU."""
    own = Backbone(nano.family, nano.model, nano.tokenizer, "graphed")
    own._run = GraphedForward(own.forward)
    return own, own._run


@pytest.mark.parametrize("options", DECODERS, ids=str)
def test_decoders_give_the_same_tokens_at_the_same_cost(
    nano: Backbone, options: dict[str, Any]
) -> None:
    own, _ = graphed(nano)
    for text in ("Copy [ cat, dog ]", "Reverse [ 4, 5, 6, 7 ], then copy it."):
        prompt = nano.text_tokenizer()(text, return_tensors="pt").input_ids
        ours, theirs = (
            decode(backbone, prompt, gen_length=16, **options) for backbone in (own, nano)
        )
        assert torch.equal(ours.tokens, theirs.tokens)
        assert (ours.trace.forwards, ours.trace.cached_tokens) == (
            theirs.trace.forwards,
            theirs.trace.cached_tokens,
        )


def test_later_requests_need_no_new_graphs(nano: Backbone) -> None:
    own, forward = graphed(nano)
    counts = []
    for length in (20, 21, 23):
        decode(own, torch.arange(10, 10 + length), gen_length=8, verify="two-stream")
        counts.append(own.graphs)
    assert counts[0] > 0 and counts == counts[:1] * 3 and forward.count == counts[0]


def test_a_shorter_call_sees_nothing_of_a_longer_one_of_its_bucket(nano: Backbone) -> None:
    own, forward = graphed(nano)
    read = torch.tensor([0])
    for length in (32, 20, 27):
        torch.testing.assert_close(
            own.logits(ids(length), read), nano.logits(ids(length), read), **CLOSE
        )
    assert forward.count == 1


def test_capturing_warms_up_and_replays_into_the_same_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With stand-ins for CUDA's own calls: the order of ours, not what a GPU makes of it."""
    monkeypatch.setattr(torch, "cuda", cuda := MagicMock())
    outputs: list[torch.Tensor] = []

    def run() -> torch.Tensor:
        outputs.append(torch.full((1,), float(len(outputs))))
        return outputs[-1]

    # marks where capture begins
    cuda.graph.side_effect = lambda graph: nullcontext(outputs.append(torch.empty(0)))
    replay = captured(run, torch.device("cuda"))
    assert [len(output) for output in outputs] == [*[1] * graphs.WARM_UPS, 0, 1]
    replayed = cuda.CUDAGraph.return_value.replay
    assert replay() is replay() is outputs[-1] and replayed.call_count == 2


def test_what_another_sequence_left_in_a_buffer_is_not_seen(nano: Backbone) -> None:
    own, forward = graphed(nano)
    whole_N, first = torch.arange(20), ids(20)
    expected = nano.extend(first, whole_N, whole_N)[0]
    _, cache = own.extend(first, whole_N, whole_N)
    places = [keys.data_ptr() for keys in cache.buffers[0]]
    for buffer in (*cache.buffers[0], *cache.buffers[1]):
        with torch.inference_mode():
            buffer.fill_(float("nan"))
    del cache
    logits, again = own.extend(first, whole_N, whole_N)
    assert [keys.data_ptr() for keys in again.buffers[0]] == places and forward.count == 1
    torch.testing.assert_close(logits, expected, **CLOSE)


def test_a_cache_that_outgrows_its_buffers_moves_to_larger(
    nano: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "LEAST_ROOM", 32)
    own, _ = graphed(nano)
    given = []
    for backbone in (own, nano):
        cache, logits = None, torch.empty(0)
        for first in range(0, 100, 20):
            position_N = torch.arange(first, first + 20)
            logits, cache = backbone.extend(ids(20), position_N, torch.arange(20), cache)
        given.append(logits)
    torch.testing.assert_close(*given, **CLOSE)


def test_the_graph_unused_for_the_longest_time_is_dropped(
    nano: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "MOST_GRAPHS", 2)
    own, forward = graphed(nano)
    for length in (10, 30, 10, 60, 10, 30):  # 60 drops 30, which then is made again
        own.logits(ids(length))
    assert forward.count == 4


def test_without_a_gpu_they_are_refused_before_anything_is_loaded() -> None:
    with pytest.raises(
        ValueError, match=r"^device cpu has no CUDA graphs: leave them out, or run on a GPU$"
    ):
        load_backbone("no such model", cuda_graphs=True)


def test_a_changed_model_runs_without_graphs_and_other_parameters_have_new_ones() -> None:
    backbone = tiny("llada")
    backbone._run = GraphedForward(backbone.forward)
    backbone.logits(ids(12))
    up = backbone.model.model.layers[0].mlp.up_proj
    up.weight = torch.nn.Parameter(2 * up.weight.detach())
    torch.testing.assert_close(backbone.logits(ids(12)), backbone.forward(*CALL), **CLOSE)
    backbone.model.model.layers[0].register_forward_hook(lambda module, args, output: 2 * output)
    assert (
        torch.equal(backbone.logits(ids(12)), backbone.model.infer(*CALL)) and backbone.graphs == 2
    )
