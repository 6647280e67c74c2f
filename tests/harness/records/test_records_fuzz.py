"""Damaged records: whatever the bytes, a run is read or refused in one line, and whole items are never lost."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UserError
from harness.records.store import Recorder, read_run
from tables.render import render

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
    {"schema": 1, "method": method, "suite": "gsm8k", "item": number, "text": "a\u00e9\n", **COSTS, **DRAFTS[method]}
    for method in ("llada", "fef-2")
    for number in range(3)
]
WINDOWS = [
    {"method": "fef-2", "suite": "gsm8k", "item": number, "step": 0, "round": n, "start": 2 * n, "proposed": 2}
    | {"accepted": 1, "committed": 2}
    for number in range(3)
    for n in range(2)
]
FILES = {
    "run.json": json.dumps(META).encode(),
    "items.jsonl": b"".join(json.dumps(row).encode() + b"\n" for row in ITEMS),
    "windows.jsonl": b"".join(json.dumps(row).encode() + b"\n" for row in WINDOWS),
}
PIECES = st.one_of(
    st.binary(max_size=8),
    st.sampled_from(
        [b"\n", b"{", b"}", b"null", b"NaN", b"-1", b"1e999", b'"', b"\x00", b"\xff", b"[]", b"true", b"9" * 30]
    ),
)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """A file of a run with one to four cuts, insertions or replacements."""
    name = draw(st.sampled_from(sorted(FILES)))
    content = FILES[name]
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        length = draw(st.integers(0, 12))
        content = content[:at] + draw(PIECES) + content[at + length :]
    return name, content


@given(damage=damaged())
def test_damage_is_read_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: tuple[str, bytes]) -> None:
    monkeypatch.setattr("harness.records.store.os.fsync", lambda descriptor: None)  # of hundreds of folders
    for name, content in {**FILES, damage[0]: damage[1]}.items():
        (tmp_path / name).write_bytes(content)
    for use in (lambda: render(read_run(tmp_path)), lambda: Recorder(tmp_path)):
        try:
            use()
        except UserError as error:
            assert str(error)


@given(cut=st.integers(0, len(FILES["items.jsonl"])))
def test_a_record_cut_anywhere_keeps_its_whole_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    monkeypatch.setattr("harness.records.store.os.fsync", lambda descriptor: None)
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    content = FILES["items.jsonl"][:cut]
    (tmp_path / "items.jsonl").write_bytes(content)
    whole = content.count(b"\n")
    assert len(read_run(tmp_path).items) == whole == len(Recorder(tmp_path).items)
