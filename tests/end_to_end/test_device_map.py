"""A run with --device-map: the tokens of a run without, and a record of where the models were."""

from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

import harness
from harness.records.store import read_meta, read_run

MAP = {
    "model.embed_tokens": "cpu",
    "model.layers": "disk",
    "model.norm": "cpu",
    "model.rotary_emb": "cpu",
    "lm_head": "cpu",
}
COLUMNS = ["method", "item", "tokens_hash", "forwards", "correct"]


def test_a_spread_model_has_the_records_of_one_on_one_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = {"methods": "threshold", "suites": "gsm8k", "limit": 1, "untimed": True, "threads": 1}
    harness.evaluate(**run, out=tmp_path / "whole")
    # What accelerate makes of "auto" on a machine that has no room.
    monkeypatch.setattr("transformers.modeling_utils._get_device_map", lambda *_: MAP)
    harness.evaluate(**run, out=tmp_path / "spread", device_map="auto")
    whole = read_run(tmp_path / "whole")
    spread = read_run(tmp_path / "spread")
    assert_frame_equal(spread.items[COLUMNS], whole.items[COLUMNS])
    assert "changed_forwards" not in spread.items
    meta = read_meta(tmp_path / "spread")
    assert (meta.config.device_map, meta.environment["device_map"]) == ("auto", {"nano": MAP})
    table = (tmp_path / "spread" / "tables" / "main.md").read_text()
    assert "- devices: nano on cpu (4 of 5 modules), disk (1 of 5 modules)" in table
