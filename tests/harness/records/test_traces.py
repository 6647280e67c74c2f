"""Traces of a run: whole after a kill, never without their item nor an item without them, refused
when damaged."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.records.files import TRACES, TraceRecord, each_frame, frame_of, packed_columns, replay
from harness.records.schema import SCHEMA
from harness.records.store import Recorder
from model_wrappers.trace import EventLog, Window

KEY = {"method": "fef-2", "suite": "gsm8k"}


def item(number: int) -> dict[str, Any]:
    return {"schema": SCHEMA, **KEY, "item": number, "correct": None}


def trace(number: int, **fields: Any) -> TraceRecord:
    """A response of four tokens: two accepted, a rejected draft, and what was filled in behind."""
    log = EventLog()
    log.began(lambda: 2)
    log.committed([0, 1], [5, 6], [0.5, 0.25], ["accepted", "corrected"])
    log.rejected([1], [7], [0.75], [0.125])
    log.recorded(Window(0, 0, 0, 2, 1, 2))
    log.committed([2, 3], [9, 9], [math.nan] * 2, ["filled", "filled"])
    pieces = {5: " five", 9: "<end>"}
    columns = packed_columns(log)
    usual = {"length": 4, "mask": 1, "tokenizer": "m", "pieces": pieces, "columns": columns}
    return TraceRecord(**KEY, item=number, **(usual | fields))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run.json").write_text(json.dumps({"schema": SCHEMA, "config": {}}))
    recorder = Recorder(tmp_path)
    for number in range(3):
        recorder.add(item(number), [], trace(number))
    return tmp_path


def numbers(folder: Path) -> list[int]:
    return [read.item for _, read in each_frame(folder)]


def test_what_is_added_is_read_back(folder: Path) -> None:
    assert numbers(folder) == [0, 1, 2]
    _, read = next(each_frame(folder))
    assert replay(read).tolist() == [5, 6, 9, 9] and read.column("target_prob").tolist() == [0.125]


@pytest.mark.parametrize("cut", [1, 30, 100])
def test_a_torn_trace_goes_and_another_may_follow(folder: Path, cut: int) -> None:
    path, items = folder / TRACES, folder / "items.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    items.write_text("".join(items.read_text().splitlines(keepends=True)[:2]))
    recorder = Recorder(folder)
    assert numbers(folder) == [0, 1]
    recorder.add(item(2), [], trace(2))
    assert numbers(folder) == [0, 1, 2]


def test_a_trace_without_its_item_goes(folder: Path) -> None:
    with (folder / TRACES).open("ab") as file:
        file.write(frame_of(trace(3)))
    Recorder(folder)
    assert numbers(folder) == [0, 1, 2]


def test_a_damaged_frame_is_named(folder: Path) -> None:
    path = folder / TRACES
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(UserError, match="frame 2"):
        list(each_frame(folder))


def test_the_texts_of_tokens_that_are_recorded_are_known_again(folder: Path) -> None:
    assert Recorder(folder).pieces == {"m": {5, 9}}
