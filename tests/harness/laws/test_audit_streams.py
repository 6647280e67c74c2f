"""The distance of the two-stream target to the paper's: 0 where both see the same tokens, measured at each position."""

from __future__ import annotations

import pytest
import torch
from fakes import tiny_llada

from harness.audit import main
from harness.laws.streams import distances, probs_along
from harness.training.responses import Example
from model_wrappers import Backbone
from model_wrappers.sampling import token_probs

EXAMPLE = Example([3, 4, 5, 6], [7, 8, 9, 10, 11, 12])


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return tiny_llada()


def test_the_papers_target_is_that_of_the_sequence_with_the_tokens_before_filled_in(backbone: Backbone) -> None:
    found = probs_along(backbone, EXAMPLE, None, full=True)
    prompt, response = EXAMPLE
    for position in range(len(response)):
        row = prompt + response[:position] + [backbone.mask_id] * (len(response) - position)
        logits = backbone.logits(torch.tensor([row]))[0, len(prompt) + position]
        torch.testing.assert_close(found[position], token_probs(logits[None], 1.0, exclude=backbone.mask_id)[0])


def test_with_a_context_for_every_position_the_targets_are_equal(backbone: Backbone) -> None:
    found = distances(backbone, [EXAMPLE], anchor=1)
    assert found["tv"].max() < 1e-5 and found["agree"].min() == 1.0


def test_in_a_longer_segment_they_differ_except_at_its_first_position(backbone: Backbone) -> None:
    full, two_stream = (probs_along(backbone, EXAMPLE, 3, full) for full in (True, False))
    apart = (full - two_stream).abs().sum(1)
    assert apart[[0, 3]].max() < 1e-5 < apart[[1, 2, 4, 5]].min()


def test_the_section_prints_a_row_per_model_and_anchor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sections", "streams", "--models", "nano", "--prompts-per-suite", "1"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("nano  ") >= 6 and "whole" in printed
