"""Decoders, batches, estimates and training: what is counted is right; what is timed is printed, never asserted."""

from typing import Any

import pytest
import torch
from fakes import tiny_llada
from families import SHIFTED, tiny

from harness.bench.decoders import _Recording, bench_methods, bench_throughput
from harness.bench.passes import bench_training
from harness.bench.shapes import Shape, Work, bench_estimate
from harness.runs.selection import methods_named
from model_wrappers import Backbone, decode, load_backbone


def test_every_method_has_a_row_with_the_forwards_it_made() -> None:
    prompts = [torch.tensor([1, 2, 3, 4]), torch.tensor([5, 6])]
    presets = methods_named("decoders,savings")
    table = bench_methods(tiny_llada(), prompts, response=8, repeats=1, presets=presets).set_index("method")
    assert list(table.index) == list(presets)
    assert table.loc["llada", "forwards"] == 8 and table.loc["llada", "token-forwards"] == 8 * (12 + 10) / 2
    assert table.loc["ddosp", "speedup, forwards"] == table.loc["llada/2", "speedup, forwards"] == 2
    assert table.loc["dcd", "rows"] == 16 and table.loc["ssd", "forwards"] <= 8


def test_throughput_is_of_no_more_responses_at_once_than_there_are(nano: Backbone) -> None:
    table = bench_throughput(nano, ["lists"], limit=3, repeats=1, presets=methods_named("threshold"))
    assert table["batch"].tolist() == [1, 2] and table["over batch 1"].iloc[0] == 1
    tokens = table["tokens/s"] / table["responses/s"]  # of a response, at every size the same ones
    assert tokens.iloc[0] == pytest.approx(tokens.iloc[1]) and tokens.iloc[0] > 1


def test_recorded_extends_give_the_same_logits_when_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone, given = tiny_llada(), []
    extend = backbone.extend

    def spied(*args: Any, **kwargs: Any) -> Any:
        logits, cache = extend(*args, **kwargs)
        given.append(logits)
        return logits, cache

    monkeypatch.setattr(backbone, "extend", spied)
    presets = methods_named("fef-two-stream(anchor=8)")
    bench_methods(backbone, [torch.tensor([1, 2, 3]), torch.tensor([4, 5])], 12, 1, presets)
    assert len(given) % 7 == 0  # recorded once; decoded and replayed in three rounds
    calls = len(given) // 7
    assert calls >= 2 * 2 * 2  # prompts, segments, context and verification
    for made, again in zip(given[:calls], given[-calls:], strict=True):
        torch.testing.assert_close(made, again)


@pytest.mark.slow
def test_training_is_measured_for_all_positions_and_for_subsets() -> None:
    table = bench_training("nano", repeats=1).set_index("objective")
    assert table.loc["llada", "rows a batch"] == 16 and table.loc["fef, 4 positions", "rows a batch"] <= 64
    assert table.loc["fef, all positions", "rows a batch"] > table.loc["fef, 16 positions", "rows a batch"]
    assert table.loc["fef, two-stream mask", "rows a batch"] == 16
    assert (table["tokens a second"] > 0).all()


# Families: where logits are read, and what becomes of new keys


@pytest.mark.parametrize("cache", ["prefix", "dual"])
@pytest.mark.parametrize("name", SHIFTED)
def test_calls_on_a_cache_are_replayed_as_they_were_made(name: str, cache: str, prompt: torch.Tensor) -> None:
    backbone = tiny(name)
    recording = _Recording(backbone)
    options = {"gen_length": 8, "block_length": 4, "cache": cache}
    out = decode(recording, prompt, "llada", **options)  # type: ignore[arg-type]
    assert torch.equal(out.tokens, decode(backbone, prompt, "llada", **options).tokens)  # type: ignore[arg-type]
    assert len(recording._calls) == out.trace.forwards
    recording.replay()


# Estimates by data sheets
LLADA = Shape.of("llada-8b")


def test_the_shape_of_llada_is_8_billion_weights() -> None:
    embedding = LLADA.head
    assert (LLADA.layers + LLADA.head + embedding) / 1e9 == pytest.approx(8.02, abs=0.01)
    assert LLADA.keys == 2 * 32 * 4096


def test_a_call_reads_weights_and_keys_and_does_two_operations_a_weight() -> None:
    call = Work(tokens=16, read=4, keys=100, pairs=16 * 100)
    assert LLADA.bytes_of(call) == 2 * (LLADA.layers + LLADA.head) + 2 * 100 * LLADA.keys
    products = 16 * LLADA.layers + 4 * LLADA.head
    assert LLADA.operations_of(call) == 2 * products + 4 * 4096 * 32 * 1600


def test_llada_decodes_a_whole_sequence_at_every_call_and_arithmetic_bounds_it() -> None:
    methods = methods_named("llada,threshold")
    table = bench_estimate(load_backbone("nano-long"), "h100", ["gsm8k-long"], 1, methods).set_index("method")
    calls, tokens = table.loc["llada", ["calls", "tokens"]]
    assert calls == 128 and tokens % 128 == 0
    assert table.loc["llada", "speed"] == 1 < table.loc["threshold", "speed"]
    assert table.loc["llada", "memory-bound, %"] == (100 if tokens / 128 < 140 else 0)
