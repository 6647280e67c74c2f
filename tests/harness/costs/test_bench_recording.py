"""What is measured of records: the right items, all of them, and a refusal where there are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_records import full_items, item, save, window

from harness.costs.recording import bench_recording
from harness.errors import UserError


@pytest.mark.slow
def test_tables_are_made_of_as_many_records_as_were_asked_for(tmp_path: Path) -> None:
    items = full_items()
    zeros = {"step": 0, "round": 0, "start": 0}
    windows = [window(row["method"], row["suite"], row["item"], 2) | zeros for row in items if row["method"] == "fef-2"]
    save(tmp_path / "run", items, windows)
    before = sorted(tmp_path.rglob("*"))
    tables = bench_recording(tmp_path / "run", items=2, windows=3 * len(windows) - 1)
    steps = tables["size"].to_dict("records")
    assert [step["step"] for step in steps] == ["written", "opened again", "read and tables"]
    for step in steps:
        assert (step["items"], step["windows"]) == (3 * len(items), 3 * len(windows))
        assert step["processor seconds"] > 0 and 10 < step["peak MiB"] < 10_000
    recording = tables["recording"].set_index("method")
    # LLaDA's items take 2 s, FeF's 0.5: the same milliseconds are four times the share.
    assert recording["% of decoding"]["fef-2"] == pytest.approx(4 * recording["% of decoding"]["llada"])
    assert sorted(tmp_path.rglob("*")) == before
    assert (bench_recording(tmp_path / "run", items=len(items) + 1, windows=1)["size"]["items"] == 2 * len(items)).all()


@pytest.mark.parametrize("items", [[], [item("llada", "gsm8k", 0, seconds=None)]])
def test_a_run_without_seconds_is_refused(tmp_path: Path, items: list[dict[str, Any]]) -> None:
    save(tmp_path, items)
    with pytest.raises(UserError, match="no items with seconds"):
        bench_recording(tmp_path)


def test_tables_that_cannot_be_made_are_said(tmp_path: Path) -> None:
    save(tmp_path, [item("fef-2", "gsm8k", 0)])  # nothing to relate speed to, and no label
    (tmp_path / "run.json").write_text('{"schema": 1, "config": {}}')
    with pytest.raises(UserError, match="cannot be used so"):
        bench_recording(tmp_path, 1, 1)
