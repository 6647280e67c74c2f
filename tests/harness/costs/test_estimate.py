"""Estimates by data sheets: what a call reads and computes at a known shape."""

from __future__ import annotations

import pytest

from harness.costs.estimate import DEVICES, REACHED, Shape, Work, bench_estimate
from harness.methods.selection import methods_named
from model_wrappers import load_backbone

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


def test_one_token_a_step_of_a_block_model_is_bound_by_its_weights() -> None:
    table = bench_estimate(load_backbone("nano-block"), "h100", ["gsm8k"], 1, methods_named("llada")).iloc[0]
    assert table["memory-bound, %"] == 100
    weights = 2 * (LLADA.layers + LLADA.head) / DEVICES["h100"][0]
    assert 1e3 * weights <= table["ms"] / table["calls"] <= 1.02 * 1e3 * weights
    assert REACHED < 1
