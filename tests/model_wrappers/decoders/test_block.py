"""Block diffusion's own sampler: schedule, threshold, order and edits, on scripted logits."""

import math
from typing import Any

import pytest
import torch

from model_wrappers import decode
from model_wrappers.decoders.s2d2 import expected
from model_wrappers.trace import Decoded

MASK, EOS = 5, 4


class Scripted:
    """Logits by call: each a list of (token, probability) for every position of the response."""

    mask_id, eos_id, vocab_size = MASK, EOS, 6

    def __init__(self, *calls: list[tuple[int, float]]) -> None:
        self.script, self.seen = list(calls), list[list[int]]()

    def logits(
        self, ids_BL: torch.Tensor, positions: torch.Tensor | None = None, causal: bool = False
    ) -> torch.Tensor:
        self.seen.append(ids_BL[0, 1:].tolist())
        said = self.script[min(len(self.seen), len(self.script)) - 1]
        probs_LV = torch.full((len(said) + 1, 6), 1e-6)
        for at, (token, prob) in enumerate(said, 1):
            probs_LV[at] = (1 - prob) / 5
            probs_LV[at, token] = prob
        logits_BLV = probs_LV.log().expand(len(ids_BL), -1, -1)
        return logits_BLV if positions is None else logits_BLV[:, positions]


def respond(model: Any, **options: Any) -> Decoded:
    return decode(model, torch.tensor([0]), "block", gen_length=4, **options)


SURE = [(1, 0.9), (2, 0.6), (3, 0.95), (1, 0.5)]


def test_a_step_commits_what_passes_the_threshold_and_the_schedule_at_least() -> None:
    model = Scripted(SURE)
    assert respond(model, threshold=0.8).tokens.tolist() == [1, 2, 3, 1]
    assert model.seen == [[MASK] * 4, [1, MASK, 3, MASK], [1, 2, 3, MASK]]
    model = Scripted(SURE)
    respond(model, threshold=0.8, steps=1)  # the schedule has all four at once
    assert model.seen == [[MASK] * 4]
    model = Scripted(SURE)
    respond(model, steps=2)  # no threshold: the schedule alone
    assert model.seen == [[MASK] * 4, [1, MASK, 3, MASK]]


def test_a_confidence_at_the_threshold_does_not_pass() -> None:
    model = Scripted([(1, 0.5)] * 4)
    respond(model, threshold=float(torch.tensor(0.5)))
    assert len(model.seen) == 4


def test_sequential_steps_go_from_left_to_right() -> None:
    model = Scripted(SURE)
    respond(model, remasking="sequential", steps=2)
    assert model.seen == [[MASK] * 4, [1, 2, MASK, MASK]]


def test_committed_tokens_are_replaced_while_the_model_says_others_and_passes_are_counted() -> None:
    changed = [(2, 0.9), (2, 0.9), (3, 0.95), (1, 0.9)]
    model = Scripted(SURE, changed)
    out = respond(model, threshold=0.8, editing_threshold=0.7)
    assert out.tokens.tolist() == [2, 2, 3, 1]
    # the second pass edits the first token and fills the rest, the third has nothing to do and
    # counts
    assert model.seen == [[MASK] * 4, [1, MASK, 3, MASK], [2, 2, 3, 1]] and out.trace.forwards == 3
    assert respond(
        Scripted(SURE, changed), threshold=0.8, editing_threshold=0.95
    ).tokens.tolist() == [1, 2, 3, 1]


def test_an_edit_needs_more_than_its_threshold() -> None:
    changed = [(2, 0.69), (2, 0.9), (3, 0.95), (1, 0.9)]
    out = respond(Scripted(SURE, changed), threshold=0.8, editing_threshold=0.7)
    assert out.tokens.tolist() == [1, 2, 3, 1]


def test_edits_without_end_are_cut() -> None:
    calls = [[(1 + number % 2, 0.9)] * 4 for number in range(40)]
    assert (
        respond(Scripted(*calls), steps=1, editing_threshold=0.5, max_post_steps=5).trace.forwards
        == 6
    )


def test_given_tokens_are_not_edited() -> None:
    given = torch.tensor([3, MASK, MASK, MASK])
    assert respond(Scripted(SURE), given=given, editing_threshold=0.0).tokens.tolist()[0] == 3


def test_s2d2_counts_a_draft_only_if_all_before_it_are_accepted() -> None:
    """A uniform distribution is accepted with exp(-1), a certain one always, but after it as
    often."""
    uniform_V = torch.full((4,), 0.25).double()
    certain_V = torch.eye(4)[0].double()
    share = math.exp(-1)
    late_1 = expected(torch.stack([uniform_V, certain_V]))
    early_1 = expected(torch.stack([certain_V, uniform_V]))
    assert late_1.tolist() == pytest.approx([2 * share])
    assert early_1.tolist() == pytest.approx([1 + share])


def test_a_mask_that_an_edit_puts_after_the_schedule_stays() -> None:
    model = Scripted(SURE, [(MASK, 0.9), *SURE[1:]])
    out = respond(model, steps=1, editing_threshold=0.7)
    assert out.tokens.tolist() == [MASK, 2, 3, 1]
