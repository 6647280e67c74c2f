"""The benchmark's tables: what they count is right; what they time is printed, never asserted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes import tiny_llada

from harness.bench import ROWS, bench_forwards, bench_overhead, main


def test_forwards_are_timed_for_every_number_of_rows() -> None:
    table = bench_forwards(tiny_llada(), prompt=4, response=8, repeats=1)
    assert table["rows"].tolist() == list(ROWS) and (table["ms, all logits"] > 0).all()
    assert table["relative to 1 row"].iloc[0] == 1.0


def test_overhead_counts_the_forwards_of_each_decoder() -> None:
    table = bench_overhead(tiny_llada(), prompt=4, response=8, repeats=1).set_index("method")
    assert table.loc["LLaDA", "forwards"] == 8 and table.loc["LLaDA/2", "forwards"] == 4
    assert table.loc["LLaDA", "token-forwards"] == 8 * 12


def test_the_record_holds_tables_and_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "bench.json"
    assert main(["--response", "8", "--repeats", "1", "--out", str(out)]) == 0
    record = json.loads(out.read_text())
    assert set(record) == {"arguments", "environment", "forwards", "overhead"}
    assert "overhead, %" in capsys.readouterr().out
