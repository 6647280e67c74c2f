"""The exact savings make FeF-DLLM cheaper and leave its law unchanged, in every combination."""

from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from fakes import FixedLogits, RandomConditionals, Recorder, request_for, tiny_llada
from fef_reference import LENGTH, PROMPT, enumerated_law, reference_law, target, tokens, unlike

from harness.audit.oracle import total_variation
from model_wrappers import Backbone, decode
from model_wrappers.decoders.fef import FeFOptions
from model_wrappers.decoders.fef.targets import FullVerifier, Proposal

NAMES = ("skip_root_row", "reuse_drafts", "adaptive_window")
COMBINATIONS = [
    dict(zip(NAMES, values, strict=True)) for values in product((False, True), repeat=3)
]
FAST = dict.fromkeys(NAMES, True)


def savings_at_night(*counts: int) -> pytest.MarkDecorator:
    """Every combination of savings; those of so many savings at night."""
    return pytest.mark.parametrize(
        "savings",
        [
            pytest.param(each, marks=[pytest.mark.slow] if sum(each.values()) in counts else [])
            for each in COMBINATIONS
        ],
        ids=lambda c: "+".join(k for k in c if c[k]),
    )


def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An adaptive window that cuts on the tiny, unsure models, too."""
    monkeypatch.setattr("model_wrappers.decoders.fef.state.LEAST_CHANCE", 0.3)


@savings_at_night(2)
@pytest.mark.parametrize("block_length", [16, 8])
@pytest.mark.parametrize("steps", [1, 2, pytest.param(4, marks=pytest.mark.slow)])
def test_greedy_tokens_stay(
    prompt: torch.Tensor, steps: int, block_length: int, savings: dict[str, bool]
) -> None:
    run = partial(tokens, tiny_llada(0), prompt, block_length=block_length, steps=steps)
    expected = run(speculative=False)
    variants: list[dict[str, Any]] = [{"window": window} for window in (1, 4, 16)]
    variants.append({"draft": tiny_llada(50), "window": 4})
    assert [run(**variant, **savings) for variant in variants] == [expected] * len(variants)


@savings_at_night(1, 2)
@pytest.mark.parametrize(
    "window", [2, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 3))]
)
@pytest.mark.parametrize("draft", [None, unlike()], ids=["own draft", "other draft"])
def test_law_of_one_step_stays(
    monkeypatch: pytest.MonkeyPatch,
    savings: dict[str, bool],
    window: int,
    draft: RandomConditionals | None,
) -> None:
    at_once(monkeypatch)
    law = enumerated_law(3, 1.0, steps=1, window=window, draft=draft, **savings)
    assert total_variation(law, reference_law(target(), 3, 1, 1.0)) < 1e-9


@savings_at_night(1, 2)
@pytest.mark.parametrize(
    "draft",
    [None, pytest.param(unlike(2), marks=pytest.mark.slow)],
    ids=["own draft", "other draft"],
)
def test_law_of_two_steps_stays(
    monkeypatch: pytest.MonkeyPatch, savings: dict[str, bool], draft: RandomConditionals | None
) -> None:
    at_once(monkeypatch)
    law = enumerated_law(4, 0.7, real=2, steps=2, window=2, draft=draft, **savings)
    assert total_variation(law, reference_law(target(2), 4, 2, 0.7)) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("savings", [{"reuse_drafts": True}, FAST])
def test_a_broken_residual_shows_with_savings_too(
    broken_residual: None, monkeypatch: pytest.MonkeyPatch, savings: dict[str, bool]
) -> None:
    at_once(monkeypatch)
    law = enumerated_law(3, 1.0, steps=1, window=2, draft=unlike(), **savings)
    assert total_variation(law, reference_law(target(), 3, 1, 1.0)) > 0.01


# What each of them saves
@pytest.mark.parametrize("steps", [1, 2])
def test_reused_drafts_take_one_forward_a_window_and_one_to_begin_with(
    prompt: torch.Tensor, steps: int
) -> None:
    run = partial(decode, tiny_llada(), prompt, gen_length=LENGTH, window=4, steps=steps)
    trace, literal = run(reuse_drafts=True).trace, run().trace
    assert trace.draft_forwards == 1 and trace.forwards == 1 + len(trace.windows)
    assert literal.forwards == 2 * len(literal.windows) > trace.forwards


def test_a_skipped_root_row_saves_a_row_a_window(prompt: torch.Tensor) -> None:
    run = partial(decode, tiny_llada(), prompt, gen_length=LENGTH, window=4)
    trace, literal = run(skip_root_row=True).trace, run().trace
    assert trace.windows == literal.windows
    assert literal.rows - trace.rows == len(literal.windows)


def test_the_root_row_of_another_draft_is_run() -> None:
    run = partial(
        decode, target(), torch.tensor(PROMPT), gen_length=LENGTH, window=4, draft=unlike()
    )
    assert run(skip_root_row=True).trace.rows == run().trace.rows


def test_a_single_position_needs_no_verification(prompt: torch.Tensor) -> None:
    trace = decode(tiny_llada(), prompt, gen_length=1, steps=1, skip_root_row=True).trace
    assert (trace.forwards, trace.draft_forwards) == (1, 1)


def test_after_a_full_acceptance_the_next_root_row_is_known() -> None:
    """Probs that ignore the context accept everything: later windows run their other rows and the
    next drafts'."""
    backbone = RandomConditionals(real=3, seed=4, scale=0.0)
    trace = decode(
        backbone,
        torch.tensor(PROMPT),
        gen_length=6,
        steps=1,
        window=3,
        **FAST | {"adaptive_window": False},
    )
    assert [window.accepted for window in trace.trace.windows] == [3, 3]
    assert (trace.trace.forwards, trace.trace.rows) == (3, 1 + (2 + 1) + 2)


def test_an_adaptive_window_ends_where_a_draft_is_hardly_ever_reached() -> None:
    """Each draft is accepted with 0.1 but the first, which is the target's own: chances of 1, 1,
    0.1 and 0.01."""
    logits_LV = torch.full((9, 11), -99.0)
    logits_LV[:, :10] = 0
    out = decode(
        FixedLogits(logits_LV),
        torch.tensor([0]),
        "fef",
        gen_length=8,
        steps=1,
        window=8,
        adaptive_window=True,
    )
    assert out.trace.windows[0].proposed == 3


def test_an_adaptive_window_runs_fewer_rows_and_never_more_drafts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_once(monkeypatch)
    run = partial(
        decode,
        RandomConditionals(real=5, seed=3, scale=3.0),
        torch.tensor(PROMPT),
        gen_length=LENGTH,
    )
    adaptive, literal = run(adaptive_window=True, window=8).trace, run(window=8).trace
    assert adaptive.rows < literal.rows
    assert all(1 <= window.proposed <= 8 for window in adaptive.windows)
    assert len({window.proposed for window in adaptive.windows}) > 1


def test_next_drafts_are_given_the_accepted_drafts_alone(tiny: Backbone) -> None:
    """Any draft probs would leave the decoder exact; these are the ones that get drafts
    accepted."""
    row, segment, drafts = [3, 14, 39, 39, 39, 39, 39], [2, 3, 4, 5, 6], [5, 6, 7]
    options = FeFOptions(window=3, reuse_drafts=True)
    verifier = FullVerifier(request_for(tiny, row, start=2), options)
    verified = verifier.verify(segment, Proposal(drafts))
    assert sorted(verified.next_drafts) == [0, 1, 2, 3]
    for accepted, logits in verified.next_drafts.items():
        given = torch.tensor([[*row[:2], *drafts[:accepted], *row[2 + accepted :]]])
        following = segment[accepted + (accepted < 3) :][:3]
        expected_LV = tiny.logits(given)[0].clone()
        expected_LV[:, tiny.mask_id] = -torch.inf
        for position in following:
            torch.testing.assert_close(
                logits[position], expected_LV[position], atol=1e-5, rtol=1e-4
            )


# Re-masking what is uncertain alone
def test_remask_below_one_half_decodes_fewer_again(prompt: torch.Tensor) -> None:
    run = partial(decode, tiny_llada(2), prompt, gen_length=LENGTH, steps=2, speculative=False)
    every, none = run().trace.forwards, run(remask_below=0.0).trace.forwards
    some = run(remask_below=0.5).trace.forwards
    assert (none, every) == (LENGTH, LENGTH + LENGTH // 2) and none < some <= every


def test_remask_below_takes_the_least_confident_of_those_below(prompt: torch.Tensor) -> None:
    first, bound = RandomConditionals(real=5, seed=7), 0.45
    backbone = Recorder(first)
    decode(
        backbone,
        torch.tensor(PROMPT),
        gen_length=LENGTH,
        steps=2,
        speculative=False,
        remask_below=bound,
    )
    confidence = []
    for position, ids_1L in enumerate(backbone.inputs[:LENGTH]):
        probs_V = torch.softmax(first.logits(ids_1L)[0, len(PROMPT) + position, :-1].double(), -1)
        confidence.append(float(probs_V.max()))
    ranked = sorted(range(LENGTH), key=confidence.__getitem__)[: LENGTH // 2]
    expected = sorted(position for position in ranked if confidence[position] < bound)
    again = (backbone.inputs[LENGTH][0, len(PROMPT) :] == backbone.mask_id).nonzero()[:, 0].tolist()
    assert again == expected and 0 < len(expected) < LENGTH // 2
