"""Responses beside golden ones: equal, different by a proven tie, or named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from msgspec.structs import replace
from paths import ROOT

from harness.errors import UserError
from harness.records.store import Run, read_run
from harness.regression.elsewhere import Responder, bench_responses, compared
from harness.regression.golden import Key

METHOD = "fef-two-stream"


@pytest.fixture(scope="module")
def golden() -> Run:
    """Four items of the golden record."""
    run = read_run(Path(ROOT) / "results" / "golden" / "nano", windows=False)
    items = run.items[(run.items["method"] == METHOD) & (run.items["item"] == 0)]
    config = replace(run.config, methods={METHOD: run.config.methods[METHOD]})
    return Run(run.folder, replace(run.meta, config=config), items, run.windows)


def recorded(golden: Run) -> dict[Key, dict[str, Any]]:
    rows = golden.items.drop(columns="correct").to_dict("records")
    return {(str(row["method"]), str(row["suite"]), int(row["item"])): {str(k): row[k] for k in row} for row in rows}


def test_responses_here_are_the_golden_ones(golden: Run) -> None:
    tables, notes = bench_responses(golden, "cpu", 1)
    assert tables["parity"].to_dict("records") == [
        {"method": METHOD, "responses": 4, "equal": 4, "other costs": 0, "ties": 0, "unlike": 0}
    ]
    assert notes == [] and tables["suites"]["ms"].gt(0).all()


def test_an_equal_record_has_no_differences(golden: Run) -> None:
    found = compared(golden, recorded(golden), lambda key, seed: pytest.fail("decoded again"))
    assert not any(found.values())


def test_golden_tokens_at_other_costs_are_counted_apart(golden: Run) -> None:
    answers = recorded(golden)
    key = next(iter(answers))
    there = answers[key]["forwards"]
    answers[key] |= {"forwards": there + 1, "accepted": 0}
    found = compared(golden, answers, lambda key, seed: pytest.fail("decoded again"))
    told = f"{METHOD} gsm8k 0 has the golden tokens at other costs (forwards: golden {there}, here {there + 1})"
    assert found == {"other costs": {key: told}, "ties": {}, "unlike": {}}


def test_a_response_that_rounding_explains_is_a_tie(golden: Run) -> None:
    answers = recorded(golden)
    key = next(iter(answers))
    right, wrong = answers[key], answers[key] | {"tokens_hash": "other"}
    answers[key] = wrong
    found = compared(golden, answers, lambda _, seed: right if seed == 3 else wrong)
    told = f"{METHOD} gsm8k 0 differs by a proven tie"
    assert found == {"other costs": {}, "ties": {key: told}, "unlike": {}}


def test_one_that_nothing_explains_is_named(golden: Run) -> None:
    answers = recorded(golden)
    key = list(answers)[1]
    answers[key] |= {"tokens_hash": "other", "forwards": answers[key]["forwards"] + 1}
    found = compared(golden, answers, lambda key, seed: answers[key])
    assert not found["ties"] and list(found["unlike"]) == [key]
    assert found["unlike"][key].startswith(f"{METHOD} math 0 is no tie")


def test_a_record_with_other_problems_is_refused(golden: Run) -> None:
    changed = Run(golden.folder, golden.meta, golden.items.assign(prompt_hash="other"), pd.DataFrame())
    with pytest.raises(UserError, match=r"has another prompt of gsm8k, item 0; the problems have changed"):
        Responder(changed, "cpu", 1)
