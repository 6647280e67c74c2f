"""A record that a kill cut anywhere keeps its whole items."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.records.store import Recorder, read_run

META = {
    "schema": 1,
    "name": "run",
    "config": {
        "methods": {"llada": {"label": "LLaDA"}, "fef-2": {"label": "FeF"}},
        "suites": {"gsm8k": {"title": "G"}},
    },
}
COSTS = {"seconds": 1.0, "forwards": 4, "rows": 4, "correct": True}
DRAFTS = {
    "llada": {"proposed": 0, "accepted": 0},
    "fef-2": {"proposed": 4, "accepted": 2, "rejected": 2, "committed": 4},
}
ITEMS = [
    {
        "schema": 1,
        "method": method,
        "suite": "gsm8k",
        "item": number,
        "text": "a\u00e9\n",
        **COSTS,
        **DRAFTS[method],
    }
    for method in ("llada", "fef-2")
    for number in range(3)
]
WINDOWS = [
    {
        "method": "fef-2",
        "suite": "gsm8k",
        "item": number,
        "step": 0,
        "round": n,
        "start": 2 * n,
        "proposed": 2,
    }
    | {"accepted": 1, "committed": 2}
    for number in range(3)
    for n in range(2)
]
FILES = {
    "run.json": json.dumps(META).encode(),
    "items.jsonl": b"".join(json.dumps(row).encode() + b"\n" for row in ITEMS),
    "windows.jsonl": b"".join(json.dumps(row).encode() + b"\n" for row in WINDOWS),
}


@given(cut=st.integers(0, len(FILES["items.jsonl"])))
def test_a_record_cut_anywhere_keeps_its_whole_items(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    monkeypatch.setattr("harness.records.store.os.fsync", lambda descriptor: None)
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    content = FILES["items.jsonl"][:cut]
    (tmp_path / "items.jsonl").write_bytes(content)
    whole = content.count(b"\n")
    assert len(read_run(tmp_path).items) == whole == len(Recorder(tmp_path).items)
