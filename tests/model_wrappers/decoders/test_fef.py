"""The FeF-DLLM decoder: its tokens do not depend on window, draft or speculation, and its trace
adds up."""

from functools import partial
from itertools import pairwise

import pytest
import torch
from fakes import RandomConditionals, Recorder, tiny_llada
from fef_reference import LENGTH, PROMPT, reference_law, target, tokens, unlike

from model_wrappers import decode

BLOCKS = (16, 8)
DIFFUSION_STEPS = (1, 2, 4)
every_steps = pytest.mark.parametrize("steps", DIFFUSION_STEPS)


# Temperature 0
@every_steps
def test_greedy_tokens_are_the_reference_ones(steps: int) -> None:
    for seed in range(10):
        backbone = RandomConditionals(real=5, seed=seed)
        (expected,) = reference_law(backbone, LENGTH, steps, temperature=0.0)
        assert tokens(backbone, torch.tensor(PROMPT), steps=steps, window=4) == list(expected)


# Costs and trace
@pytest.mark.parametrize("block_length", BLOCKS)
@pytest.mark.parametrize(("steps", "forwards"), [(1, 16), (2, 24), (4, 40)])
def test_without_speculation_it_costs_one_row_a_resolved_position(
    prompt: torch.Tensor, steps: int, forwards: int, block_length: int
) -> None:
    run = partial(decode, tiny_llada(), prompt, gen_length=LENGTH, block_length=block_length)
    trace = run(steps=steps, speculative=False).trace
    assert (trace.forwards, trace.rows) == (forwards, forwards)
    assert trace.token_forwards == forwards * (len(prompt) + LENGTH)
    assert trace.windows == [] and trace.draft_forwards == 0


@every_steps
@pytest.mark.parametrize("block_length", BLOCKS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_windows_add_up_to_the_positions_and_to_the_cost(
    prompt: torch.Tensor, temperature: float, block_length: int, steps: int
) -> None:
    run = partial(
        decode,
        tiny_llada(),
        prompt,
        gen_length=LENGTH,
        block_length=block_length,
        temperature=temperature,
    )
    trace = run(steps=steps, window=4).trace
    windows, width = trace.windows, len(prompt) + LENGTH
    blocks, remasked = LENGTH // block_length, block_length // 2
    assert sum(w.committed for w in windows) == blocks * (block_length + (steps - 1) * remasked)
    assert all(w.committed == min(w.accepted + 1, w.proposed) for w in windows)
    assert all(
        1 <= w.proposed <= 4 and 0 <= w.step < steps and 0 <= w.start < LENGTH for w in windows
    )
    assert trace.forwards == 2 * len(windows) and trace.draft_forwards == trace.draft_rows == len(
        windows
    )
    assert trace.rows == sum(1 + w.proposed for w in windows)
    assert (trace.token_forwards, trace.draft_token_forwards) == (
        width * trace.rows,
        width * len(windows),
    )


@pytest.mark.parametrize("block_length", BLOCKS)
def test_windows_start_where_the_one_before_ended_in_the_first_step(
    prompt: torch.Tensor, block_length: int
) -> None:
    run = partial(decode, tiny_llada(), prompt, gen_length=LENGTH, window=3)
    windows = run(block_length=block_length, steps=1).trace.windows
    ends = [w.start + w.committed for w in windows]
    assert [w.start for w in windows] == [0, *ends[:-1]]
    assert ends[-1] == LENGTH
    for before, after in pairwise(windows):
        assert after.round == (0 if after.start % block_length == 0 else before.round + 1)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_draft_equal_to_the_target_is_accepted_at_the_first_position(temperature: float) -> None:
    windows = decode(
        target(), torch.tensor(PROMPT), gen_length=LENGTH, window=4, temperature=temperature
    ).trace.windows
    assert all(w.accepted >= 1 for w in windows)


def test_draft_probs_come_from_the_draft_model_alone() -> None:
    draft = Recorder(unlike())
    trace = decode(target(), torch.tensor(PROMPT), gen_length=4, window=3, draft=draft).trace
    assert len(draft.inputs) == trace.draft_forwards == len(trace.windows)
    assert all(len(ids_BL) == 1 for ids_BL in draft.inputs)


# Confidence scope
@pytest.mark.parametrize("speculative", [True, False])
@pytest.mark.parametrize("block_length", BLOCKS)
@pytest.mark.parametrize("seed", range(5))
def test_with_scope_pass_four_steps_equal_two(
    prompt: torch.Tensor, seed: int, block_length: int, speculative: bool
) -> None:
    """C holds the positions of the step before alone: the same ones are masked, and get the same
    tokens again."""
    run = partial(
        tokens,
        tiny_llada(seed),
        prompt,
        block_length=block_length,
        speculative=speculative,
        window=4,
    )
    assert (
        run(steps=2, confidence_scope="pass")
        == run(steps=4, confidence_scope="pass")
        == run(steps=2)
    )


@pytest.mark.parametrize(("fraction", "forwards"), [(0.0, 16), (0.3, 20), (1.0, 32)])
def test_remask_fraction_says_how_many_are_decoded_again(
    prompt: torch.Tensor, fraction: float, forwards: int
) -> None:
    trace = decode(
        tiny_llada(),
        prompt,
        gen_length=LENGTH,
        steps=2,
        speculative=False,
        remask_fraction=fraction,
    ).trace
    assert trace.forwards == forwards
