"""The regression gate catches what was planted, names it, and lets an unchanged run pass."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from paths import ROOT
from run_records import PAPER_SUITES, item, save

from harness.errors import UserError
from harness.gate import main
from harness.records.schema import RunConfig, RunRecord
from harness.records.store import Run
from harness.regression import speed
from harness.regression.golden import compare_accuracy, compare_exactly, platform_class
from harness.regression.speed import Worker, compare_seconds

ENVIRONMENT = {
    "platform": "Linux x86_64",
    "cpu": "Vendor model 1",
    "cpu_capability": "AVX2",
    "threads": 2,
    "dtype": "float32",
    "packages": {"torch": "2.13.0", "transformers": "5.23.0"},
}
METHODS = ("llada", "fef-2")
ITEMS = 100


def items_of(**changes: Any) -> list[dict[str, Any]]:
    """Items of two methods on four suites, three of four right; `changes` to FeF's item 7 of math."""
    rows = []
    for method in METHODS:
        for suite in PAPER_SUITES:
            for number in range(ITEMS):
                row = item(method, suite, number, correct=number % 4 > 0, tokens_hash=f"{suite}{number}", text="said")
                row |= {"prompt_hash": "p", "rows": 48, "token_forwards": 100}
                rows.append(row | (changes if (method, suite, number) == ("fef-2", "math", 7) else {}))
    return rows


def run_of(folder: Path, rows: list[dict[str, Any]], environment: dict[str, Any] = ENVIRONMENT, **config: Any) -> Run:
    suites = {suite: {"gen_length": 48, "options": {}} for suite in PAPER_SUITES}
    settings = {
        "data": "generated",
        "temperature": 0.0,
        "seed": 0,
        "methods": {name: {"label": name, "method": name, "role": "base", "suites": suites} for name in METHODS},
        "suites": {key: {"title": title} for key, title in PAPER_SUITES.items()},
        **config,
    }
    files = {suite: {"sha256": "s"} for suite in PAPER_SUITES}
    return save(folder, rows, config=settings, environment=environment, data={"files": files})


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    return run_of(tmp_path / "golden", items_of()).folder


def verdict(run: Run, golden: Path) -> int:
    return main([str(run.folder), "--against", str(golden)])


def test_an_unchanged_run_passes(tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict(run_of(tmp_path / "run", items_of()), golden) == 0
    assert "compared exactly" in capsys.readouterr().out


def test_a_changed_token_is_caught_and_shown(tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict(run_of(tmp_path / "run", items_of(tokens_hash="other", text="said so")), golden) == 1
    printed = capsys.readouterr().out
    assert "fef-2 math 7" in printed and "'said so'" in printed


@pytest.mark.parametrize("measure", ["forwards", "rows", "token_forwards"])
def test_one_more_forward_row_or_token_is_caught(tmp_path: Path, golden: Path, measure: str) -> None:
    more = {"forwards": 49, "rows": 49, "token_forwards": 101}[measure]
    assert verdict(run_of(tmp_path / "run", items_of(**{measure: more})), golden) == 1


def test_fewer_forwards_pass_and_are_named(tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict(run_of(tmp_path / "run", items_of(forwards=40)), golden) == 0
    assert "better" in capsys.readouterr().out


@pytest.mark.parametrize("change", [{"correct": False}, {"correct": None}, {"accepted": 3}])
def test_a_lost_verdict_or_another_acceptance_is_caught(tmp_path: Path, golden: Path, change: dict[str, Any]) -> None:
    assert verdict(run_of(tmp_path / "run", items_of(**change)), golden) == 1


@pytest.mark.parametrize("measure", ["tokens_hash", "forwards"])
def test_a_run_that_does_not_say_what_the_golden_one_says_is_caught(tmp_path: Path, golden: Path, measure: str) -> None:
    rows = [{name: value for name, value in row.items() if name != measure} for row in items_of()]
    assert verdict(run_of(tmp_path / "run", rows), golden) == 1


def test_verdicts_that_no_sandbox_gave_are_left_out_and_named(
    tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row | ({"correct": None} if row["suite"] == "mbpp" else {}) for row in items_of()]
    run = run_of(tmp_path / "run", rows)
    meta = json.loads((run.folder / "run.json").read_text())
    (run.folder / "run.json").write_text(json.dumps({**meta, "scoring": {"not_scored": {"mbpp": "no sandbox"}}}))
    assert verdict(run, golden) == 0
    assert "verdicts of mbpp are left out: no sandbox" in capsys.readouterr().out


def test_a_missing_item_is_caught(tmp_path: Path, golden: Path) -> None:
    run = run_of(tmp_path / "run", items_of()[:-1])
    found = compare_exactly(run_of(golden, items_of()), run)
    assert found["verdict"].tolist() == ["missing"] and found["items"].tolist() == [str(ITEMS - 1)]
    assert verdict(run, golden) == 1


def test_other_weights_are_named(tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(tmp_path / "run", items_of())
    meta = json.loads((run.folder / "run.json").read_text())
    meta["weights"]["nano"]["sha256"] = {"model.safetensors": "f"}
    (run.folder / "run.json").write_text(json.dumps(meta))
    assert verdict(run, golden) == 1
    assert "weights of nano" in capsys.readouterr().out


def lose(share: float, seed: int = 0) -> list[dict[str, Any]]:
    """The items, FeF right on so many fewer of them (a share), and other tokens where it is."""
    rows = items_of()
    right = [row for row in rows if row["method"] == "fef-2" and row["correct"]]
    for place in np.random.default_rng(seed).permutation(len(right))[: round(share * ITEMS * len(PAPER_SUITES))]:
        right[place] |= {"correct": False, "tokens_hash": "other"}
    return rows


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_drop_of_five_points_is_caught_on_any_platform(tmp_path: Path, golden: Path, elsewhere: bool) -> None:
    environment = {**ENVIRONMENT, **({"cpu_capability": "AVX512"} if elsewhere else {})}
    assert verdict(run_of(tmp_path / "run", lose(0.05), environment), golden) == 1


def test_elsewhere_a_lost_tie_or_two_pass(tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment = {**ENVIRONMENT, "cpu": "Other model 2"}
    assert verdict(run_of(tmp_path / "run", lose(0.005), environment), golden) == 0
    assert "another class of platform: processor" in capsys.readouterr().out


def test_elsewhere_too_few_items_are_undecided(tmp_path: Path) -> None:
    few = [row for row in items_of() if row["item"] < 5]
    before, now = run_of(tmp_path / "a", few), run_of(tmp_path / "b", few)
    assert set(compare_accuracy(before, now, margin=5.0)["verdict"]) == {"undecided"}


def meta_of(environment: dict[str, Any]) -> RunRecord:
    return RunRecord(schema=1, config=RunConfig(), environment=environment)


def test_models_of_one_maker_and_kind_are_one_class() -> None:
    other = {**ENVIRONMENT, "cpu": "Vendor model 9"}
    assert platform_class(meta_of(ENVIRONMENT)) == platform_class(meta_of(other))


OTHER_ROLES = {name: {"label": name, "method": name, "role": "fef"} for name in METHODS}


@pytest.mark.parametrize("change", [{"temperature": 1.0}, {"seed": 1}, {"methods": OTHER_ROLES}])
def test_other_settings_are_refused(tmp_path: Path, golden: Path, change: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="differ in settings"):
        verdict(run_of(tmp_path / "run", items_of(), **change), golden)


def test_an_update_says_what_changed_and_then_passes(
    tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(tmp_path / "run", items_of(tokens_hash="other"))
    assert main([str(run.folder), "--against", str(golden), "--update"]) == 0
    assert "tokens_hash" in capsys.readouterr().out
    assert verdict(run, golden) == 0


def test_nothing_to_compare_with_is_refused(golden: Path) -> None:
    with pytest.raises(UserError, match="nothing to compare"):
        main([str(golden)])


def test_an_unknown_revision_is_refused(golden: Path) -> None:
    with pytest.raises(UserError, match=r"--against-rev no-such-revision"):
        main([str(golden), "--against-rev", "no-such-revision"])


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


@pytest.mark.parametrize(("compiled", "pairs"), [(False, 4), (True, 1)])
def test_the_sides_alternate_in_a_pair_of_processes_for_each_item(
    monkeypatch: pytest.MonkeyPatch, compiled: bool, pairs: int
) -> None:
    made: list[str] = []
    calls: list[str] = []

    class Side:
        def __init__(self, tree: Path, threads: int) -> None:
            self.name = "old" if tree == Path("old") else "new"
            made.append(self.name)

        def __enter__(self) -> Side:
            return self

        def __exit__(self, *error: object) -> None: ...

        def decode(self, request: dict[str, Any]) -> dict[str, Any]:
            if request["method"] == "unknown":
                return {"error": "no such method"}
            calls.append(self.name)
            return {"seconds": {"old": 1.0, "new": 3.0}[self.name], "forwards": 2, "tokens": "same"}

    def request(config: Any, model: str, prompt: list[int]) -> dict[str, Any]:
        return {"method": model}

    monkeypatch.setattr(speed, "Worker", Side)
    monkeypatch.setattr(speed, "_request", request)
    models = {"llada": "llada", "other": "unknown"}
    jobs: Any = [SimpleNamespace(suite=s, models=models, prompts=[torch.tensor([1])] * 3) for s in ("gsm8k", "math")]
    config = RunConfig(device="cpu", compile=compiled, threads=1)
    measured, notes = speed.measure_both(Path("old"), config, jobs, items=2)
    assert made == ["old", "new"] * pairs and calls == ["old", "new"] * 3 * 4
    assert len(measured) == 4 and set(measured["old"]) == {1.0} and set(measured["new"]) == {3.0}
    assert notes == [f"other on {suite} is left out: no such method" for suite in ("gsm8k", "math")]


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
    line = [sys.executable, "harness/run.py", "--suite", "gsm8k", "--methods", "llada,fef-fast", "--limit", "4"]
    subprocess.run([*line, "--out", str(out)], cwd=ROOT, check=True, capture_output=True)
    api = clone / "model_wrappers" / "api.py"
    code = api.read_text()
    place = "    _synchronize(target.device)\n    seconds = time.perf_counter() - began\n"
    assert place in code
    sleep = '    if method == "fef":\n        time.sleep(time.perf_counter() - began)\n'
    api.write_text(code.replace(place, sleep + place))
    gate = [sys.executable, "harness/gate.py", str(out), "--against-rev", "HEAD", "--items", "4"]
    done = subprocess.run(gate, cwd=clone, env={"PYTHONPATH": str(clone)}, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    verdicts = [line.split()[:2] for line in done.stdout.splitlines() if line.split()[:1] in (["ok"], ["regressed"])]
    assert verdicts == [["ok", "llada"], ["regressed", "fef-fast"]], done.stdout
