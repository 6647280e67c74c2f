"""Speed against another revision: what is slower is caught, what is as fast passes, on a noisy machine too."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from paths import ROOT

from harness.errors import UserError
from harness.records.schema import RunConfig
from harness.regression import speed
from harness.regression.process import Worker
from harness.regression.speed import compare_seconds


def seconds(slower: float, seed: int, items: int = 20) -> pd.DataFrame:
    """Seconds of two trees on a noisy machine: items differ, a common drift, 5% noise; FeF now `slower` times."""
    random = np.random.default_rng(seed)
    rows = []
    for method, base, factor in (("llada", 0.3, 1.0), ("fef-2", 0.2, slower)):
        for number in range(items):
            drift = random.uniform(0.8, 1.3)
            old, new = base * (1 + number % 3) * drift * random.normal(1, 0.05, 2)
            rows.append({"method": method, "suite": "gsm8k", "item": number, "old": old, "new": new * factor})
    return pd.DataFrame(rows)


@pytest.mark.parametrize("seed", range(10))
def test_a_fifth_slower_is_caught_and_the_same_speed_passes(seed: int) -> None:
    slow = compare_seconds(seconds(1.2, seed), tolerance=0.05).set_index("method")["verdict"]
    assert slow.to_dict() == {"llada": "ok", "fef-2": "regressed"}
    assert set(compare_seconds(seconds(1.0, seed), tolerance=0.05)["verdict"]) == {"ok"}


def test_a_slower_llada_cannot_hide_behind_its_speedups() -> None:
    measured = seconds(1.0, 0)
    measured["new"] *= 1.2
    assert set(compare_seconds(measured, tolerance=0.05)["verdict"]) == {"regressed"}


def test_a_worker_answers_with_tokens_or_with_its_error() -> None:
    request = {
        "model": str(ROOT / "model_wrappers" / "nano"),
        "draft": None,
        "prompt": [5, 6, 7],
        "method": "llada",
        "options": {"steps": 4},
        **{"gen_length": 8, "block_length": 8, "temperature": 0.0, "seed": 0},
        **{"device": "cpu", "dtype": "float32", "compile": False},
    }
    with Worker(ROOT, threads=1) as worker:
        first, second = worker.decode(request), worker.decode(request)
        assert first["forwards"] == 4 and first["tokens"] == second["tokens"] and first["seconds"] > 0
        assert "unheard_of" in worker.decode({**request, "options": {"unheard_of": 1}})["error"]


def measure_with(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[str, str], dict[str, Any]], *suites: str, **config: Any
) -> tuple[Any, list[str]]:
    """Items of two methods, three a suite, of which two are measured, with sides that give a method these answers.

    Also which sides were started, in their order.
    """
    made: list[str] = []

    class Side:
        def __init__(self, tree: Path, threads: int) -> None:
            self.name = "old" if tree == Path("old") else "new"
            made.append(self.name)

        def __enter__(self) -> Side:
            return self

        def __exit__(self, *error: object) -> None: ...

        def decode(self, request: dict[str, Any]) -> dict[str, Any]:
            return answer(self.name, request["method"])

    monkeypatch.setattr(speed, "Worker", Side)
    monkeypatch.setattr(speed, "request_of", lambda config, model, prompt: {"method": model})
    models = {"llada": "llada", "other": "unknown"}
    prompts = [torch.tensor([1])] * 3
    jobs: Any = [SimpleNamespace(suite=suite, models=models, prompts=prompts) for suite in suites]
    return speed.measure_both(Path("old"), RunConfig(device="cpu", threads=1, **config), jobs, items=2), made


@pytest.mark.parametrize(("compiled", "pairs"), [(False, 4), (True, 1)])
def test_the_sides_alternate_in_a_pair_of_processes_for_each_item(
    monkeypatch: pytest.MonkeyPatch, compiled: bool, pairs: int
) -> None:
    calls: list[str] = []

    def answer(side: str, method: str) -> dict[str, Any]:
        if method == "unknown":
            return {"error": "no such method"}
        calls.append(side)
        return {"seconds": {"old": 1.0, "new": 3.0}[side], "forwards": 2, "tokens": "same"}

    (measured, notes), made = measure_with(monkeypatch, answer, "gsm8k", "math", compile=compiled)
    assert made == ["old", "new"] * pairs and calls == ["old", "new"] * 3 * 4
    assert len(measured) == 4 and set(measured["old"]) == {1.0} and set(measured["new"]) == {3.0}
    assert notes == [f"other on {suite} is left out: no such method" for suite in ("gsm8k", "math")]


def test_the_faster_of_two_responses_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    given = iter([9.0, 9.0, 2.0, 4.0, 1.0, 8.0] * 2)  # both warm up, then old, new, old, new

    def answer(side: str, method: str) -> dict[str, Any]:
        return {"error": ""} if method == "unknown" else {"seconds": next(given), "forwards": 2, "tokens": "same"}

    (measured, _), _ = measure_with(monkeypatch, answer, "math")
    assert measured[["old", "new"]].to_numpy().tolist() == [[1.0, 4.0]] * 2


def test_a_method_that_this_tree_alone_cannot_run_is_no_method_to_leave_out(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"old": {"seconds": 1.0, "forwards": 2, "tokens": "same"}, "new": {"error": "broken"}}
    with pytest.raises(UserError, match="llada on math is decoded by the other revision, not by this: broken"):
        measure_with(monkeypatch, lambda side, method: answers[side], "math")


@pytest.mark.slow
@pytest.mark.alone
def test_a_planted_slowdown_is_caught_between_two_trees(tmp_path: Path) -> None:
    """The gate of a clone whose FeF takes twice its time, against the revision it was cloned from.

    A fifth is caught too, on a machine that does nothing else; that it is caught in noise is tested on numbers, above.
    """
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("needs a git checkout")
    clone, out = tmp_path / "clone", tmp_path / "run"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    line = [sys.executable, "harness/run.py", "--suite", "gsm8k", "--methods", "llada,fef-fast", "--limit", "2"]
    subprocess.run([*line, "--out", str(out)], cwd=ROOT, check=True, capture_output=True)
    api = clone / "model_wrappers" / "api.py"
    code = api.read_text()
    place = "    _synchronize(target.device)\n    seconds = time.perf_counter() - began\n"
    assert place in code
    sleep = '    if method == "fef":\n        time.sleep(time.perf_counter() - began)\n'
    api.write_text(code.replace(place, sleep + place))
    gate = [sys.executable, "harness/gate.py", str(out), "--against-rev", "HEAD", "--items", "2"]
    done = subprocess.run(gate, cwd=clone, env={"PYTHONPATH": str(clone)}, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "speed: REGRESSED by more than 5% in 2 rounds: fef-fast\n" in done.stdout, done.stdout
