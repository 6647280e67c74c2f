"""Our decoders against what the official code wrote on nano's weights (goldens/tokens, see
make_tokens.py)."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from official_cases import (
    CASES,
    GOLDENS,
    PROBLEMS,
    SOURCES,
    Case,
    hash_of,
    nano_sha256,
    prompts,
    respond,
)
from parity_table import table

from harness.suites.registry import PAPER_SUITES
from model_wrappers import Backbone

# Where a ratio or a confidence is within rounding of what it is compared with: the processor
# decides (docs/parity.md).
NEAR_TIES = {"s2d2": {"mbpp 35"}, "sdar": {"humaneval 33"}}
FEW = ("gsm8k", "humaneval")  # every change meets the first problem of one of them, cases in turn


def of_source(source: str) -> dict[str, Any]:
    """A golden file, if it was made with the weights that are shipped."""
    content: dict[str, Any] = json.loads((GOLDENS / f"{source}.json").read_text(encoding="utf-8"))
    if content["weights_sha256"] != nano_sha256():
        pytest.fail(
            f"goldens/tokens/{source}.json was made with weights of nano whose SHA-256 is"
            f" {content['weights_sha256']}; those here have {nano_sha256()}: restore them, or make"
            " the goldens again (make_tokens.py)",
            pytrace=False,
        )
    return content


def golden(case: Case) -> dict[str, Any]:
    return dict(of_source(case.source)["cases"][case.name])


def unlike(nano: Backbone, case: Case, suites: Iterable[str], count: int) -> list[str]:
    """Those of the first `count` problems of the suites where our tokens are not the official
    ones."""
    expected = golden(case)["tokens"]
    return [
        f"{suite} {item}"
        for suite in suites
        for item, prompt_P in list(enumerate(prompts(nano, suite)))[
            : min(count, len(expected[suite]))
        ]
        if hash_of(respond(nano, case, suite, prompt_P).tokens) != expected[suite][item]
    ]


@pytest.mark.parametrize("source", SOURCES)
def test_goldens_were_made_with_the_weights_that_are_shipped(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_source(source)
    monkeypatch.setitem(globals(), "nano_sha256", lambda: "0" * 64)
    with pytest.raises(
        pytest.fail.Exception, match=f"{source}.json was made with weights of nano whose SHA-256 is"
    ):
        of_source(source)


def in_turn() -> Iterator[Any]:
    """All cases; but for the first of each source they are left to the night."""
    first = {case.source: case for case in reversed(CASES)}
    for case in CASES:
        marks = [] if case is first[case.source] else [pytest.mark.slow]
        yield pytest.param(case, marks=marks, id=f"{case.name} ({case.source})")


@pytest.mark.parametrize("case", in_turn())
def test_tokens_are_the_official_ones_on_a_problem(nano: Backbone, case: Case) -> None:
    suite = FEW[CASES.index(case) % len(FEW)]
    assert unlike(nano, case, [suite], 1) == [
        problem for problem in golden(case)["unlike"] if problem == f"{suite} 0"
    ]


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name} ({case.source})")
def test_tokens_are_the_official_ones(nano: Backbone, case: Case) -> None:
    differing = set(unlike(nano, case, PAPER_SUITES, PROBLEMS)) ^ set(golden(case)["unlike"])
    assert differing <= NEAR_TIES.get(case.source, set())


def test_the_documentation_has_the_table_of_the_goldens() -> None:
    assert table() in (Path(__file__).parents[2] / "docs" / "parity.md").read_text(encoding="utf-8")
