"""Which code a run was made with: the decoders' files, what they share, and the options that nobody set."""

import hashlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

import harness
import model_wrappers
from harness.outside import with_helpers
from harness.records.hashes import files_hash
from harness.records.schema import RunConfig
from model_wrappers.decoders import Decoder
from model_wrappers.options import convert_options


def describe_code(decoders: Mapping[str, Decoder]) -> dict[str, Any]:
    """The code part of run.json, for decoders by name.

    {"decoders": {name: {"sha256": of its file and what it imports from beside it, "defaults": its options}},
    "shared": SHA-256 of the package's other files, "harness": of what makes prompts and verdicts, and runs}.
    """
    described = {
        name: {
            "sha256": _source_hash(decoder.function),
            "defaults": msgspec.to_builtins(decoder.options(), enc_hook=str),
        }
        for name, decoder in sorted(decoders.items())
    }
    package = Path(model_wrappers.__file__).parent
    shared = [path for path in sorted(package.rglob("*.py")) if path.parent.name != "decoders"]
    return {
        "decoders": described,
        "shared": files_hash(shared),
        "harness": files_hash(sorted(Path(harness.__file__).parent.rglob("*.py"))),
    }


def resolved_options(config: RunConfig, decoders: Mapping[str, Decoder]) -> dict[str, dict[str, Any]]:
    """All options that a run's decoders are called with, by method and suite: those that were set, and the defaults.

    decoders: by method.
    """
    return {
        key: {
            suite: msgspec.to_builtins(
                convert_options(decoders[key].options, setting.options, method.method), enc_hook=str
            )
            for suite, setting in method.suites.items()
        }
        for key, method in config.methods.items()
    }


def _source_hash(function: Callable[..., Any]) -> str:
    """SHA-256 of the file that a decoder is in; of its own code where it was typed into an interpreter."""
    function = inspect.unwrap(function)
    try:
        return files_hash(with_helpers(Path(inspect.getfile(function))))
    except (TypeError, OSError):
        code: Any = getattr(function, "__code__", None)
    try:
        text = inspect.getsource(function)
    except (TypeError, OSError):
        text = repr((code.co_code, code.co_names)) if code is not None else type(function).__qualname__
    return hashlib.sha256(text.encode()).hexdigest()
