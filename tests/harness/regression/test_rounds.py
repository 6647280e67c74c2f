"""Rounds of measuring: a method that is slower is so in both, and responses are those of the revision."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from gate_runs import items_of, run_of

from harness import gate
from harness.errors import UserError
from harness.regression import speed
from harness.regression.speed import same_responses, slower_methods

METHODS = ["llada", "ssd", "dcd", "entropy", "fef-2"]


def fixed(**new: float) -> pd.DataFrame:
    """Seconds of every method's eight items, 1 before; `new` now, 1 by default."""
    rows = [{"method": method, "suite": "math", "item": item, "old": 1.0} for method in METHODS for item in range(8)]
    return pd.DataFrame(rows).assign(new=lambda frame: frame["method"].map(new).fillna(1.0))


def test_what_is_slower_in_one_round_alone_passes_and_both_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    given = [fixed(ssd=1.3, dcd=1.3), fixed(entropy=1.3)]
    asked: list[set[str]] = []

    def measure(methods: Collection[str], number: int) -> pd.DataFrame:
        asked.append(set(methods))
        frame = given[len(asked) - 1]
        return frame[frame["method"].isin(list(methods))]

    assert slower_methods(measure, METHODS, tolerance=0.05) == []
    assert asked == [set(METHODS), {"ssd", "dcd", "llada"}]
    printed = capsys.readouterr().out
    assert "round 1" in printed and "round 2" in printed and "measured again on more items: ssd, dcd" in printed


def responses(**changes: Any) -> pd.DataFrame:
    rows = [{"method": "fef-2", "suite": "math", "item": item, "old": 1.0, "new": 1.0} for item in range(4)]
    same = {"old_forwards": 48, "new_forwards": 48, "same_tokens": True}
    return pd.DataFrame([row | same | (changes if row["item"] == 2 else {}) for row in rows])


CHANGES = [{"same_tokens": False}, {"new_forwards": 49}]


@pytest.mark.parametrize("change", CHANGES)
def test_another_token_or_one_more_forward_than_the_revision_fails_unless_it_is_meant(
    change: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert not same_responses(responses(**change), allow_changed_responses=False)
    assert "fef-2 (math 2)" in capsys.readouterr().out
    assert same_responses(responses(**change), allow_changed_responses=True)


def test_fewer_forwards_than_the_revision_pass_and_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert same_responses(responses(new_forwards=40), allow_changed_responses=False)
    assert "fewer forwards: fef-2 (math 2)" in capsys.readouterr().out


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[pd.DataFrame]:
    """What the gate's command measures, instead of measuring; the last frame is given again and again."""
    frames = [responses()]

    @contextmanager
    def checkout(rev: str) -> Iterator[Path]:
        yield Path("old")

    def measure(tree: Path, config: Any, jobs: Any, items: int, methods: Collection[str]) -> Any:
        return frames[-1], []

    monkeypatch.setattr(speed, "checkout", checkout)
    monkeypatch.setattr(speed, "recorded", lambda *given: None)  # its methods are none of ours
    monkeypatch.setattr(speed, "load", lambda *given: ([], {}))
    monkeypatch.setattr(speed, "measure_both", measure)
    return frames


@pytest.mark.parametrize("change", [{}, *CHANGES])
def test_the_command_fails_if_responses_differ_from_the_revisions(
    tmp_path: Path, measured: list[pd.DataFrame], change: dict[str, Any]
) -> None:
    measured.append(responses(**change))
    line = [str(run_of(tmp_path / "run", items_of()).folder), "--against-rev", "HEAD"]
    assert gate.main(line) == (1 if change else 0)
    assert gate.main([*line, "--allow-changed-responses"]) == 0


def test_the_command_fails_if_a_method_is_slower_in_both_rounds(
    tmp_path: Path, measured: list[pd.DataFrame], capsys: pytest.CaptureFixture[str]
) -> None:
    measured.append(responses().assign(new=1.3))
    assert gate.main([str(run_of(tmp_path / "run", items_of()).folder), "--against-rev", "HEAD"]) == 1
    assert "REGRESSED by more than 5% in 2 rounds: fef-2" in capsys.readouterr().out


def test_a_revision_that_can_run_nothing_is_refused(tmp_path: Path, measured: list[pd.DataFrame]) -> None:
    measured.append(pd.DataFrame())
    with pytest.raises(UserError, match="HEAD can run none of the methods"):
        gate.main([str(run_of(tmp_path / "run", items_of()).folder), "--against-rev", "HEAD"])
