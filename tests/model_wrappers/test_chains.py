"""Every chain of two-stream verification has one law: that of filling its positions one by one.

A chain says where a context is computed (once, by anchors, in doubt) and in which order positions
are filled. The law may depend on nothing else: no window, draft or saving.
"""

from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from enumerated import enumerate_law
from fakes import tiny_llada
from fef_reference import tokens
from two_stream_reference import sequential_law

from harness.audit.oracle import total_variation
from model_wrappers import Backbone

two_stream = partial(tokens, verify="two-stream")
SAVINGS = [
    pytest.param(
        dict(zip(("skip_root_row", "adaptive_window"), on, strict=True)),
        marks=[] if all(on) else [pytest.mark.slow],
    )
    for on in product((False, True), repeat=2)
]
ORDERS = ("left-to-right", "confidence")
PROMPT = torch.tensor([0, 1])


def chains(anchors: list[int | None], doubts: list[float]) -> list[dict[str, Any]]:
    """Options of every chain of these anchors and thresholds of doubt."""
    return [
        {"anchor": anchor, "refresh_below": doubt, "order": order}
        for anchor, doubt, order in product(anchors, doubts, ORDERS)
    ]


@pytest.mark.parametrize("chain", chains([None, 4], [0.0, 0.2, 0.3]), ids=str)
@pytest.mark.parametrize("steps", [1, 2])
def test_greedy_tokens_are_sequential_decodings(
    prompt: torch.Tensor, steps: int, chain: dict[str, Any]
) -> None:
    backbone = tiny_llada(3)
    (expected,) = sequential_law(backbone, prompt.tolist(), 8, 0.0, steps, **chain)
    assert two_stream(backbone, prompt, gen_length=8, steps=steps, window=4, **chain) == list(
        expected
    )


@pytest.mark.parametrize("savings", SAVINGS, ids=str)
@pytest.mark.parametrize("chain", chains([None, 5], [0.0, 0.2]), ids=str)
@pytest.mark.parametrize("block_length", [pytest.param(16, marks=pytest.mark.slow), 8])
def test_greedy_tokens_are_the_same_for_every_window_draft_and_saving(
    prompt: torch.Tensor, block_length: int, chain: dict[str, Any], savings: dict[str, bool]
) -> None:
    run = partial(two_stream, tiny_llada(0), prompt, block_length=block_length, **chain)
    expected = run(speculative=False)
    variants: list[dict[str, Any]] = [{"window": window} for window in (1, 4, 5, 16)]
    variants.append({"draft": tiny_llada(50), "window": 4})
    assert [run(**variant, **savings) for variant in variants] == [expected] * len(variants)


@pytest.mark.parametrize("chain", chains([None], [0.0, 0.65]) + chains([2], [0.0]), ids=str)
@pytest.mark.parametrize(
    "variant",
    [
        {"speculative": False},
        pytest.param({"window": 1}, marks=pytest.mark.slow),
        pytest.param({"window": 2}, marks=pytest.mark.slow),
        pytest.param({"window": 4}, marks=pytest.mark.slow),
        {"window": 2, "draft": tiny_llada(2, vocab_size=3)},
        pytest.param({"window": 2, "adaptive_window": True}, marks=pytest.mark.slow),
        pytest.param(
            {"window": 4, "skip_root_row": True, "adaptive_window": True}, marks=pytest.mark.slow
        ),
    ],
)
def test_the_law_is_sequential_decodings(
    small: Backbone, variant: dict[str, Any], chain: dict[str, Any]
) -> None:
    run = partial(two_stream, small, PROMPT, gen_length=3, temperature=1.0, steps=1, **chain)
    measured = enumerate_law(lambda sampler: torch.tensor(run(sampler=sampler, **variant)))
    # The same numbers in batches of other shapes differ in the last bits of float32.
    assert total_variation(measured, sequential_law(small, PROMPT.tolist(), 3, 1.0, **chain)) < 1e-5


@pytest.mark.parametrize("variant", [{"window": 2}, {"window": 2, "skip_root_row": True}])
def test_the_law_of_two_steps_is_that_of_sequential_decoding(
    small: Backbone, variant: dict[str, Any]
) -> None:
    run = partial(two_stream, small, PROMPT, gen_length=2, temperature=1.0, steps=2)
    measured = enumerate_law(lambda sampler: torch.tensor(run(sampler=sampler, **variant)))
    assert total_variation(measured, sequential_law(small, PROMPT.tolist(), 2, 1.0, steps=2)) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("doubt", [0.0, 0.65])
@pytest.mark.parametrize("order", ORDERS)
def test_a_broken_residual_shows(
    small: Backbone, broken_residual: None, order: str, doubt: float
) -> None:
    chain: dict[str, Any] = {"refresh_below": doubt, "order": order}
    options: dict[str, Any] = {"gen_length": 3, "temperature": 1.0, "steps": 1, **chain}
    run = partial(two_stream, small, PROMPT, window=2, draft=tiny_llada(2, vocab_size=3))
    measured = enumerate_law(lambda sampler: torch.tensor(run(sampler=sampler, **options)))
    assert total_variation(measured, sequential_law(small, PROMPT.tolist(), 3, 1.0, **chain)) > 1e-3


def test_chains_have_different_laws(small: Backbone) -> None:
    differing: list[dict[str, Any]] = [
        {},
        {"anchor": 2},
        {"refresh_below": 0.65},
        {"order": "confidence"},
    ]
    laws = [sequential_law(small, PROMPT.tolist(), 3, 1.0, **chain) for chain in differing]
    for at, law in enumerate(laws):
        assert all(total_variation(law, other) > 1e-3 for other in laws[:at])
