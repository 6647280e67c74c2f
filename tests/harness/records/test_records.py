"""Records: whole after a kill, and refused when damaged; hashes of what they were made with."""

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from paths import ROOT

from harness.errors import UserError
from harness.records.files import BESIDE, file_hash, model_hashes, ships
from harness.records.schema import SCHEMA, RunConfig
from harness.records.store import Recorder, config_hash, read_lines, read_meta, read_run
from model_wrappers.backbones.registry import SHIPPED


def item(number: int, **more: Any) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "method": "fef-2",
        "suite": "gsm8k",
        "item": number,
        "correct": None,
        **more,
    }


def window(number: int, start: int) -> dict[str, Any]:
    return {"method": "fef-2", "suite": "gsm8k", "item": number, "start": start}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run.json").write_text(json.dumps({"schema": SCHEMA, "config": {}}))
    recorder = Recorder(tmp_path)
    for number in range(3):
        recorder.add(item(number), [window(number, 0), window(number, 7)])
    return tmp_path


def test_added_items_are_read_back(folder: Path) -> None:
    run = read_run(folder)
    assert run.items["item"].tolist() == [0, 1, 2] and len(run.windows) == 6
    assert Recorder(folder).done("fef-2", "gsm8k", 2) and not Recorder(folder).done(
        "llada", "gsm8k", 2
    )


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_torn_last_item_is_dropped_with_its_windows(folder: Path, cut: int) -> None:
    path = folder / "items.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    recorder = Recorder(folder)
    assert not recorder.done("fef-2", "gsm8k", 2) and recorder.done("fef-2", "gsm8k", 1)
    recorder.add(item(2), [window(2, 0), window(2, 7)])
    run = read_run(folder)
    assert run.items["item"].tolist() == [0, 1, 2]
    assert run.windows[["item", "start"]].values.tolist() == [
        [n, s] for n in range(3) for s in (0, 7)
    ]


def test_a_torn_window_line_does_not_stay(folder: Path) -> None:
    with (folder / "windows.jsonl").open("a") as file:
        file.write('{"method": "fef-2", "sui')
    Recorder(folder)
    assert len(read_lines(folder / "windows.jsonl")) == 6


def test_scores_come_later_and_change_nothing_else(folder: Path) -> None:
    Recorder(folder).score({("fef-2", "gsm8k", 1): (True, "")})
    rows = read_lines(folder / "items.jsonl")
    assert [row["correct"] for row in rows] == [None, True, None]


@pytest.mark.parametrize(
    "line",
    [
        "{broken",
        *(
            json.dumps(item(1))[:-1] + f', "seconds": {spent}}}'
            for spent in ("1e400", "1e308", "-1")
        ),
    ],
)
def test_a_damaged_line_is_named(folder: Path, line: str) -> None:
    path = folder / "items.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], line, lines[2]]) + "\n")
    with pytest.raises(UserError, match=r"items.jsonl, line 2: .*repair or remove that line"):
        read_run(folder)


def test_passes_of_an_item_that_was_removed_are_dropped_on_opening(folder: Path) -> None:
    recorder = Recorder(folder)
    for number in range(3):
        seconds = {"drafts": 1, "plain": 0.1, "draft": 0.1, "verification": 0.1}
        recorder.add_passes({"method": "fef-2", "suite": "gsm8k", "item": number, **seconds})
    path = folder / "items.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    Recorder(folder)
    assert [row["item"] for row in read_lines(folder / "passes.jsonl")] == [0, 1]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 99}', None])
def test_a_run_file_that_is_bad_or_missing_is_refused(folder: Path, content: str | None) -> None:
    (folder / "run.json").write_text(content or "")
    if content is None:
        (folder / "run.json").unlink()
    with pytest.raises(UserError, match=r"run\.json is missing" if content is None else "."):
        read_run(folder)


def test_a_packed_run_is_read_and_not_written_to(folder: Path) -> None:
    plain = read_run(folder)
    for name in ("items.jsonl", "windows.jsonl"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
        (folder / name).unlink()
    packed = read_run(folder)
    pd.testing.assert_frame_equal(packed.items, plain.items)
    pd.testing.assert_frame_equal(packed.windows, plain.windows)
    with pytest.raises(UserError, match="gunzip"):
        Recorder(folder)


def test_the_hash_does_not_depend_on_the_order_of_keys() -> None:
    models = {"base": {"gsm8k": "nano"}, "fef": {"gsm8k": "nano-fef"}}
    one, turned = RunConfig(models=models), RunConfig(models=dict(reversed(models.items())))
    assert config_hash(one) == config_hash(turned) != config_hash(RunConfig(models=models, seed=3))


def test_the_hash_of_a_committed_run_is_that_of_its_configuration() -> None:
    for folder in ("golden/nano", "reference/main", "reference/front"):
        meta = read_meta(ROOT / "results" / folder)
        assert meta.config_hash == config_hash(meta.config)


def test_weights_are_all_files_of_weights_in_the_folder_as_they_are_now(tmp_path: Path) -> None:
    for name in ("b.safetensors", "a.safetensors", "c.bin", "d.pt", "config.json"):
        (tmp_path / name).write_bytes(name.encode())
    before = model_hashes(tmp_path)
    assert before == {
        name: file_hash(tmp_path / name)
        for name in ("a.safetensors", "b.safetensors", "c.bin", "d.pt")
    }
    (tmp_path / "a.safetensors").write_bytes(b"trained further")
    assert model_hashes(tmp_path) == before | {
        "a.safetensors": hashlib.sha256(b"trained further").hexdigest()
    }
    assert model_hashes(tmp_path / "hub" / "id") == {}


def test_a_model_ships_with_this_project_by_its_weights_and_as_they_are_read() -> None:
    """With another block length in config.json, or an adapter, it is another model under the same
    weights."""
    for folder in SHIPPED.values():
        model = {"sha256": model_hashes(folder), "files": model_hashes(folder, BESIDE)}
        assert ships(model) and ships({"sha256": model["sha256"]})
        assert not ships(model | {"files": model["files"] | {"config.json": "0" * 64}})
        assert not ships(model | {"adapter": {"adapter_config.json": "0" * 64}})
