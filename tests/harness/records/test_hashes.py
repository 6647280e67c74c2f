"""SHA-256 of files and of a model's weights."""

from __future__ import annotations

import hashlib
from pathlib import Path

from harness.records.hashes import file_hash, model_hashes, nano_hashes
from model_wrappers.backbones.registry import SHIPPED


def test_weights_are_all_files_of_weights_in_the_folder_as_they_are_now(tmp_path: Path) -> None:
    for name in ("b.safetensors", "a.safetensors", "c.bin", "d.pt", "config.json"):
        (tmp_path / name).write_bytes(name.encode())
    before = model_hashes(tmp_path)
    assert before == {name: file_hash(tmp_path / name) for name in ("a.safetensors", "b.safetensors", "c.bin", "d.pt")}
    (tmp_path / "a.safetensors").write_bytes(b"trained further")
    assert model_hashes(tmp_path) == before | {"a.safetensors": hashlib.sha256(b"trained further").hexdigest()}
    assert model_hashes(tmp_path / "hub" / "id") == {}


def test_the_hashes_of_the_shipped_weights_are_theirs() -> None:
    files = [path for folder in SHIPPED.values() for path in model_hashes(folder).values()]
    assert nano_hashes() == set(files) and len(files) == len(SHIPPED)
