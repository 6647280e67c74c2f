"""Which code a run was made with: the decoders' files, what they share, and the options that nobody set."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

import model_wrappers
from harness.records.hashes import file_hash, files_hash
from model_wrappers.decoders import METHODS


def describe_code(names: Iterable[str]) -> dict[str, Any]:
    """The code part of run.json, for the decoders of these names.

    {"decoders": {name: {"sha256": of its file, "defaults": its options}}, "shared": SHA-256 of the package's other
    files}. With the options that a configuration sets, the defaults are all that a decoder was called with.
    """
    decoders = {
        name: {
            "sha256": file_hash(Path(inspect.getfile(METHODS[name].function))),
            "defaults": msgspec.to_builtins(METHODS[name].options(), enc_hook=str),
        }
        for name in sorted(set(names))
    }
    package = Path(model_wrappers.__file__).parent
    shared = [path for path in sorted(package.rglob("*.py")) if path.parent.name != "decoders"]
    return {"decoders": decoders, "shared": files_hash(shared)}
