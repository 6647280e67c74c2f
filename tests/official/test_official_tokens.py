"""Our decoders against what the official code wrote on nano's weights (goldens/tokens, see make_tokens.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from official_cases import CASES, GOLDENS, PROBLEMS, Case, hash_of, prompts, respond
from parity_table import table

from harness.suites.registry import PAPER_SUITES
from model_wrappers import Backbone, load_backbone

FEW = 1  # problems a suite; they take seconds


@pytest.fixture(scope="module")
def nano() -> Backbone:
    return load_backbone("nano")


def golden(case: Case) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((GOLDENS / f"{case.source}.json").read_text(encoding="utf-8"))
    return dict(content["cases"][case.name])


def unlike(nano: Backbone, case: Case, first: int, last: int) -> list[str]:
    """The problems `first` .. `last` - 1 of every suite where our tokens are not the official ones."""
    expected = golden(case)["tokens"]
    return [
        f"{suite} {item}"
        for suite in PAPER_SUITES
        for item, prompt_P in list(enumerate(prompts(nano, suite)))[first : min(last, len(expected[suite]))]
        if hash_of(respond(nano, case, suite, prompt_P).tokens) != expected[suite][item]
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name} ({case.source})")
def test_tokens_are_the_official_ones_on_a_few_problems(nano: Backbone, case: Case) -> None:
    known = golden(case)["unlike"]
    assert unlike(nano, case, 0, FEW) == [problem for problem in known if int(problem.split()[1]) < FEW]


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name} ({case.source})")
def test_tokens_are_the_official_ones(nano: Backbone, case: Case) -> None:
    known = golden(case)["unlike"]
    assert unlike(nano, case, FEW, PROBLEMS) == [problem for problem in known if int(problem.split()[1]) >= FEW]


def test_the_documentation_has_the_table_of_the_goldens() -> None:
    assert table() in (Path(__file__).parents[2] / "docs" / "parity.md").read_text(encoding="utf-8")
