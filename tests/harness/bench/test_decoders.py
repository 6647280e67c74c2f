"""Decoders and estimates: what is counted is right; what is timed is printed, never asserted."""

import pytest
import torch
from fakes import tiny_llada

from harness.bench.decoders import bench_methods, bench_prompts, options_of, with_timed_calls
from harness.bench.shapes import Shape, Work, estimate
from harness.runs.selection import methods_named
from model_wrappers import decode, load_backbone


def test_every_method_has_a_row_with_the_forwards_it_made() -> None:
    prompts = [torch.tensor([1, 2, 3, 4]), torch.tensor([5, 6])]
    presets = methods_named("decoders,savings")
    table = bench_methods(tiny_llada(), prompts, response=8, repeats=1, presets=presets).set_index(
        "method"
    )
    assert list(table.index) == list(presets)
    assert (
        table.loc["llada", "forwards"] == 8
        and table.loc["llada", "token-forwards"] == 8 * (12 + 10) / 2
    )
    assert table.loc["ddosp", "speedup, forwards"] == table.loc["llada/2", "speedup, forwards"] == 2
    assert table.loc["dcd", "rows"] == 16 and table.loc["ssd", "forwards"] <= 8
    assert (table["calls, ms"] < table["decoder, ms"]).all()


def test_decoders_are_not_compared_on_prompts_without_text() -> None:
    """On random ids every decoder is unsure, and its speedup is not that on text."""
    with pytest.raises(ValueError, match="has no tokenizer; text needs one"):
        bench_prompts(tiny_llada())


@pytest.mark.parametrize("method", ["llada", "fef-two-stream"])
def test_every_call_of_the_model_is_timed_and_the_tokens_are_the_same(method: str) -> None:
    backbone, prompt_P = tiny_llada(), torch.tensor([1, 2, 3])
    ((_, options),) = options_of(
        backbone, "bench", methods_named(method), {"gen_length": 8}
    ).items()
    timed, seconds = with_timed_calls(backbone)
    out = decode(timed, prompt_P, **options)
    assert torch.equal(out.tokens, decode(backbone, prompt_P, **options).tokens)
    assert len(seconds) == out.trace.forwards


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
    table = estimate(load_backbone("nano-long"), "h100", ["gsm8k-long"], 1, methods).set_index(
        "method"
    )
    calls, tokens = table.loc["llada", ["calls", "tokens"]]
    assert calls == 128 and tokens % 128 == 0
    assert table.loc["llada", "speed"] == 1 < table.loc["threshold", "speed"]
    assert table.loc["llada", "memory-bound, %"] == (100 if tokens / 128 < 140 else 0)
