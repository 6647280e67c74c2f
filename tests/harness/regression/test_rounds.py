"""Speed on a busy machine: a method that is slower is so in both rounds, an unchanged tree passes, all are timed."""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from gate_runs import items_of, run_of
from paths import ROOT

from harness import gate, run
from harness.errors import UserError
from harness.records.store import read_run
from harness.regression import rounds
from harness.regression.rounds import same_responses, slower_methods

GOLDEN = ROOT / "results" / "golden" / "nano"
METHODS = list(read_run(GOLDEN, windows=False).config.methods)
SLEEP = 0.25
PACE = 0.25  # seconds of a response of LLaDA's, whatever machine made the golden record
ITEMS = 2  # of a suite


def busy(seed: int, methods: Collection[str], count: int, **slower: float) -> pd.DataFrame:
    """Seconds of two trees on a busy machine, `count` items a suite: as in the golden record, and noise.

    A pair of processes differs by 6%, a response by 8%, one in ten takes half as long again, and all take half as long
    again as alone. Methods are slower by so many seconds.
    """
    random = np.random.default_rng(seed)
    items = read_run(GOLDEN, windows=False).items
    items["seconds"] *= PACE / items.loc[items["method"] == "llada", "seconds"].mean()
    items = items[(items["item"] < count) & items["method"].isin(list(methods))]
    pairs = {pair: random.lognormal(0.4, 0.06, 2) for pair in items.groupby(["suite", "item"]).groups}
    rows = []
    for row in items.to_dict("records"):
        bursts = np.where(random.random((2, 2)) < 0.1, 1.5, 1)
        seconds = row["seconds"] * (random.lognormal(0, 0.08, (2, 2)) * bursts).min(axis=1)
        old, new = seconds * pairs[row["suite"], row["item"]]
        key = {name: row[name] for name in ("method", "suite", "item")}
        rows.append({**key, "old": old, "new": new + slower.get(row["method"], 0.0)})
    return pd.DataFrame(rows)


class Machine:
    """Measures as the gate does, each round with other noise; remembers what was asked for."""

    def __init__(self, seed: int, **slower: float) -> None:
        self.random, self.slower = np.random.default_rng(seed), slower
        self.asked: list[set[str]] = []

    def __call__(self, methods: Collection[str], number: int) -> pd.DataFrame:
        self.asked.append(set(methods))
        return busy(int(self.random.integers(1 << 31)), methods, number * ITEMS, **self.slower)


@pytest.mark.parametrize("method", METHODS)
def test_a_sleep_in_any_method_is_seen_on_a_busy_machine(method: str) -> None:
    machines = [Machine(seed, **{method: SLEEP}) for seed in range(10)]
    assert sum(method in slower_methods(machine, METHODS, tolerance=0.05) for machine in machines) >= 8


def test_ten_unchanged_trees_pass_on_a_busy_machine_and_not_in_one_round_each() -> None:
    machines = [Machine(seed) for seed in range(10)]
    assert [slower_methods(machine, METHODS, tolerance=0.05) for machine in machines] == [[]] * 10
    assert any(len(machine.asked) == 2 for machine in machines)


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


def commands() -> tuple[argparse.Namespace, argparse.Namespace]:
    """What `make gate` runs: its run, and its judgement."""
    line = ["make", "--dry-run", "--always-make", "gate", "BASE=HEAD"]
    printed = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = {}
    for command in printed.replace("\\\n", " ").splitlines():
        words = shlex.split(command, comments=True)
        if len(words) > 1 and words[1].startswith("harness/"):
            found[words[1]] = words[2:]
    return run.arguments_of(found["harness/run.py"]), gate.arguments_of(found["harness/gate.py"])


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_gate_times_every_method_that_it_compares() -> None:
    decoded, judged = commands()
    assert decoded.methods.split(",") == METHODS
    timed = METHODS if judged.methods is None else judged.methods.split(",")
    assert timed == METHODS and judged.items == ITEMS


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

    monkeypatch.setattr(rounds, "checkout", checkout)
    monkeypatch.setattr(rounds, "load", lambda *asked: ([], {}))
    monkeypatch.setattr(rounds, "measure_both", measure)
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
