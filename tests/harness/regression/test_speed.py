"""Speed against another revision: what is slower is caught, what is as fast passes, on a noisy
machine too."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from gate_runs import items_of, run_of
from paths import ROOT

from harness import gate
from harness.errors import UserError
from harness.records.schema import RunConfig
from harness.regression import revision, speed, verdicts
from harness.regression.revision import Side
from harness.regression.speed import compare_seconds, same_responses, slower_methods


def seconds(slower: float, seed: int, items: int = 20) -> pd.DataFrame:
    """Seconds of two trees on a noisy machine: items differ, a common drift, 5% noise; FeF now
    `slower` times."""
    random = np.random.default_rng(seed)
    rows = []
    for method, base, factor in (("llada", 0.3, 1.0), ("fef-2", 0.2, slower)):
        for number in range(items):
            drift = random.uniform(0.8, 1.3)
            old, new = base * (1 + number % 3) * drift * random.normal(1, 0.05, 2)
            rows.append(
                {
                    "method": method,
                    "suite": "gsm8k",
                    "item": number,
                    "old": old,
                    "new": new * factor,
                }
            )
    return pd.DataFrame(rows)


@pytest.mark.parametrize("seed", range(5))
def test_a_fifth_slower_is_caught_and_the_same_speed_passes(seed: int) -> None:
    slow = compare_seconds(seconds(1.2, seed), tolerance=0.05).set_index("method")["verdict"]
    assert slow.to_dict() == {"llada": "ok", "fef-2": "regressed"}
    assert set(compare_seconds(seconds(1.0, seed), tolerance=0.05)["verdict"]) == {"ok"}


@pytest.mark.parametrize(("gained", "verdict"), [(0.9, "ok"), (1.0, "regressed")])
def test_a_method_that_gained_less_than_llada_has_not_become_slower(
    gained: float, verdict: str
) -> None:
    measured = seconds(gained, 0)
    measured.loc[measured["method"] == "llada", "new"] *= 0.75
    verdicts = compare_seconds(measured, tolerance=0.05).set_index("method")["verdict"]
    assert verdicts.to_dict() == {"llada": "ok", "fef-2": verdict}


@pytest.mark.slow
def test_a_side_answers_with_tokens_or_with_its_error() -> None:
    request = {
        **{"model": str(ROOT / "model_wrappers" / "nano"), "draft": None, "prompt": [5, 6, 7]},
        **{"method": "llada", "options": {"steps": 4}},
        **{"gen_length": 8, "block_length": 8, "temperature": 0.0, "seed": 0},
        **{"device": "cpu", "dtype": "float32", "graphs": False},
    }
    with Side(ROOT, threads=1) as side:
        first, second = side.decode(request), side.decode(request)
        assert (
            first["forwards"] == 4 and first["tokens"] == second["tokens"] and first["seconds"] > 0
        )
        assert "unheard_of" in side.decode({**request, "options": {"unheard_of": 1}})["error"]


def measure_with(
    monkeypatch: pytest.MonkeyPatch,
    answer: Callable[[str, str], dict[str, Any]],
    *suites: str,
    **config: Any,
) -> tuple[Any, list[str]]:
    """Items of two methods, three a suite, of which two are measured, with sides that give a method
    these answers.

    Also which sides were started, in their order.
    """
    made: list[str] = []

    class Fake:
        def __init__(self, tree: Path, threads: int) -> None:
            self.name = "old" if tree == Path("old") else "new"
            made.append(self.name)

        def __enter__(self) -> Fake:
            return self

        def __exit__(self, *error: object) -> None: ...

        def decode(self, request: dict[str, Any]) -> dict[str, Any]:
            return answer(self.name, request["method"])

    monkeypatch.setattr(speed, "Side", Fake)
    monkeypatch.setattr(speed, "request_of", lambda config, model, prompt: {"method": model})
    models = {"llada": "llada", "other": "unknown"}
    prompts = {"prompts": [torch.tensor([1])] * 3, "prompt": lambda method, item: torch.tensor([1])}
    jobs: Any = [SimpleNamespace(suite=suite, models=models, **prompts) for suite in suites]
    return speed.measure_both(
        Path("old"), RunConfig(threads=1, **{"device": "cpu", **config}), jobs, 2, models
    ), made


@pytest.mark.parametrize(("device", "pairs"), [("cpu", 4), ("cuda", 1)])
def test_the_sides_alternate_in_a_pair_of_processes(
    monkeypatch: pytest.MonkeyPatch, device: str, pairs: int
) -> None:
    calls: list[str] = []

    def answer(side: str, method: str) -> dict[str, Any]:
        if method == "unknown":
            return {"error": "no such method"}
        calls.append(side)
        return {"seconds": {"old": 1.0, "new": 3.0}[side], "forwards": 2, "tokens": "same"}

    (measured, notes), made = measure_with(monkeypatch, answer, "gsm8k", "math", device=device)
    assert made == ["old", "new"] * pairs and calls == ["old", "new"] * 3 * 4
    assert len(measured) == 4 and set(measured["old"]) == {1.0} and set(measured["new"]) == {3.0}
    assert notes == [f"other on {suite} is left out: no such method" for suite in ("gsm8k", "math")]


def test_a_method_that_this_tree_alone_cannot_run_is_no_method_to_leave_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {"old": {"seconds": 1.0, "forwards": 2, "tokens": "same"}, "new": {"error": "broken"}}
    with pytest.raises(
        UserError, match="llada on math is decoded by the other revision, not by this: broken"
    ):
        measure_with(monkeypatch, lambda side, method: answers[side], "math")


TWICE_AS_SLOW = """

import functools
import time

undisturbed = decode_fef


@functools.wraps(undisturbed)
def decode_fef(request, options):
    start_time = time.perf_counter()
    undisturbed(request, options)
    time.sleep(time.perf_counter() - start_time)
"""


@pytest.mark.slow
@pytest.mark.alone
def test_a_planted_slowdown_is_caught_between_two_trees(tmp_path: Path) -> None:
    """The gate of a clone whose FeF takes twice its time, against the revision it was cloned from.

    A fifth is caught too, on a machine that does nothing else; that it is caught in noise is tested
    on numbers, above.
    """
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("needs a git checkout")
    clone, out = tmp_path / "clone", tmp_path / "run"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    line = [
        sys.executable,
        "harness/run.py",
        "--suite",
        "gsm8k",
        "--methods",
        "llada,fef-fast",
        "--limit",
        "2",
    ]
    subprocess.run([*line, "--out", str(out)], cwd=ROOT, check=True, capture_output=True)
    with (clone / "model_wrappers/decoders/fef/algorithm.py").open("a") as algorithm:
        algorithm.write(TWICE_AS_SLOW)
    gate = [sys.executable, "harness/gate.py", str(out), "--against-rev", "HEAD", "--items", "2"]
    done = subprocess.run(
        gate, cwd=clone, env={"PYTHONPATH": str(clone)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "speed: REGRESSED by more than 5% in 2 rounds: fef-fast\n" in done.stdout, done.stdout


# Rounds of measuring
METHODS = ["llada", "ssd", "dcd", "entropy", "fef-2"]


def fixed(**new: float) -> pd.DataFrame:
    """Seconds of every method's eight items, 1 before; `new` now, 1 by default."""
    rows = [
        {"method": method, "suite": "math", "item": item, "old": 1.0}
        for method in METHODS
        for item in range(8)
    ]
    return pd.DataFrame(rows).assign(new=lambda frame: frame["method"].map(new).fillna(1.0))


def test_what_is_slower_in_one_round_alone_passes_and_both_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [fixed(ssd=1.3, dcd=1.3), fixed(entropy=1.3)]
    asked: list[set[str]] = []

    def measure(methods: Collection[str], number: int) -> pd.DataFrame:
        asked.append(set(methods))
        frame = given[len(asked) - 1]
        return frame[frame["method"].isin(list(methods))]

    assert slower_methods(measure, METHODS, tolerance=0.05) == []
    assert asked == [set(METHODS), {"ssd", "dcd", "llada"}]
    printed = capsys.readouterr().out
    assert (
        "round 1" in printed
        and "round 2" in printed
        and "measured again on more items: ssd, dcd" in printed
    )


def responses(**changes: Any) -> pd.DataFrame:
    rows = [
        {"method": "fef-2", "suite": "math", "item": item, "old": 1.0, "new": 1.0}
        for item in range(4)
    ]
    same = {"old_forwards": 48, "new_forwards": 48, "same_tokens": True}
    return pd.DataFrame([row | same | (changes if row["item"] == 2 else {}) for row in rows])


OTHER_RESPONSES = [{"same_tokens": False}, {"new_forwards": 49}]


def test_fewer_forwards_than_the_revision_pass_and_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert same_responses(responses(new_forwards=40))
    assert "fewer forwards: fef-2 (math 2)" in capsys.readouterr().out


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[pd.DataFrame]:
    """What the gate's command measures, instead of measuring; the last frame is given again and
    again."""
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
    monkeypatch.setattr(verdicts, "judge_verdicts", lambda *given: True)
    return frames


@pytest.mark.parametrize("change", [{}, *OTHER_RESPONSES])
def test_the_command_fails_if_responses_differ_from_the_revisions(
    tmp_path: Path,
    measured: list[pd.DataFrame],
    change: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    measured.append(responses(**change))
    line = [str(run_of(tmp_path / "run", items_of()).folder), "--against-rev", "HEAD"]
    assert gate.main(line) == (1 if change else 0)
    assert ("fef-2 (math 2)" in capsys.readouterr().out) == bool(change)


def test_the_command_fails_if_a_method_is_slower_in_both_rounds(
    tmp_path: Path, measured: list[pd.DataFrame], capsys: pytest.CaptureFixture[str]
) -> None:
    measured.append(responses().assign(new=1.3))
    assert (
        gate.main([str(run_of(tmp_path / "run", items_of()).folder), "--against-rev", "HEAD"]) == 1
    )
    assert "REGRESSED by more than 5% in 2 rounds: fef-2" in capsys.readouterr().out


def test_a_revision_that_can_run_nothing_is_refused(
    tmp_path: Path, measured: list[pd.DataFrame]
) -> None:
    measured.append(pd.DataFrame())
    with pytest.raises(UserError, match="HEAD can run none of the methods"):
        gate.main([str(run_of(tmp_path / "run", items_of()).folder), "--against-rev", "HEAD"])


# The checkout of another revision, and that nothing is left of it
HOLD = """
import sys, time
from pathlib import Path
from harness.regression import revision
revision.ROOT = Path(sys.argv[1])
with revision.checkout("HEAD") as tree:
    print(tree, flush=True)
    time.sleep(60)
"""


def git(folder: Path, *line: str) -> str:
    names = ["-c", "user.name=a", "-c", "user.email=a@b"]
    command = ["git", "-C", str(folder), *names, *line]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This project: a repository of two commits, with another file changed and not committed."""
    folder = tmp_path / "repository"
    (folder / "package").mkdir(parents=True)
    git(folder, "init", "--quiet")
    for content in ("first", "second"):
        (folder / "package" / "code.py").write_text(content)
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", content)
    (folder / "package" / "code.py").write_text("third")
    git(folder, "add", "--all")
    monkeypatch.setattr(revision, "ROOT", folder)
    return folder


def test_a_revision_is_checked_out_and_the_clone_keeps_no_trace(repository: Path) -> None:
    before = git(repository, "status", "--porcelain")
    with revision.checkout("HEAD~1") as tree:
        assert (tree / "package" / "code.py").read_text() == "first"
        assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert not tree.exists() and git(repository, "status", "--porcelain") == before


@pytest.mark.parametrize("rev", ["no-such-revision", "HEAD:package"])
def test_what_is_no_revision_is_refused(repository: Path, rev: str) -> None:
    with pytest.raises(UserError, match="git rev-parse --verify"), revision.checkout(rev):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_is_ended_leaves_no_worktree(
    repository: Path, tmp_path: Path, number: signal.Signals
) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(repository)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    tree = Path(process.stdout.readline().strip())
    assert (tree / "package" / "code.py").read_text() == "second"
    process.send_signal(number)
    process.communicate()
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    if number != signal.SIGKILL:  # no process can clean up after that
        assert process.returncode == 128 + number and not tree.exists()
