"""The distance of the two-stream target to the paper's: 0 where both see the same tokens, measured at each position."""

from __future__ import annotations

import pandas as pd
import pytest
import torch
from fakes import tiny_llada

from harness.audit import main
from harness.laws.streams import Contexts, distances, paper_targets, probs_along
from harness.training.responses import Example
from model_wrappers import Backbone
from model_wrappers.sampling import token_probs

EXAMPLE = Example([3, 4, 5, 6], [7, 8, 9, 10, 11, 12])


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return tiny_llada()


def apart(backbone: Backbone, contexts: Contexts) -> pd.DataFrame:
    return distances(backbone, [EXAMPLE], paper_targets(backbone, [EXAMPLE]), contexts)


def test_the_papers_target_is_that_of_the_sequence_with_the_tokens_before_filled_in(backbone: Backbone) -> None:
    found = probs_along(backbone, EXAMPLE, None)[0]
    prompt, response = EXAMPLE
    for position in range(len(response)):
        row = prompt + response[:position] + [backbone.mask_id] * (len(response) - position)
        logits = backbone.logits(torch.tensor([row]))[0, len(prompt) + position]
        torch.testing.assert_close(found[position], token_probs(logits[None], 1.0, exclude=backbone.mask_id)[0])


def test_with_a_context_for_every_position_the_targets_are_equal(backbone: Backbone) -> None:
    found = apart(backbone, Contexts(anchor=1))
    assert found["tv"].max() < 1e-5 and found["agree"].min() == 1.0


def test_in_a_longer_segment_they_differ_except_at_its_first_position(backbone: Backbone) -> None:
    full, two_stream = (probs_along(backbone, EXAMPLE, contexts)[0] for contexts in (None, Contexts(anchor=3)))
    away = (full - two_stream).abs().sum(1)
    assert away[[0, 3]].max() < 1e-5 < away[[1, 2, 4, 5]].min()


def test_where_it_is_in_doubt_the_target_is_the_papers(backbone: Backbone) -> None:
    """Below every probability: the same context throughout. Above all of them: a fresh one for each position."""
    one, some, all_fresh = (apart(backbone, Contexts(fresh_below=c)).loc[0] for c in (0.0, 0.2, 1.1))
    assert [one["contexts"], all_fresh["contexts"]] == [1, 6] and 1 < some["contexts"] < 6
    assert one["tv"] > some["tv"] > 1e-3 and all_fresh["tv"] < 1e-5


def test_the_section_prints_a_row_per_model_and_anchor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sections", "streams", "--models", "nano", "--prompts-per-suite", "1"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("nano  ") >= 9 and "whole" in printed
