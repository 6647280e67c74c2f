"""What a run is made with, as run.json has it: machine, weights, problems, options and plugins."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache
from msgspec import to_builtins

from harness.plugins import used_by
from harness.records.environment import describe
from harness.records.files import BESIDE, WEIGHTS, files_hash, model_hashes
from harness.records.schema import RunConfig
from harness.runs.resolve import ResolvedRun
from model_wrappers.backbones.model import Backbone
from model_wrappers.backbones.placement import map_of
from model_wrappers.decoders import Decoder
from model_wrappers.options import convert_options


def describe_data(run: ResolvedRun, data: Path) -> dict[str, Any]:
    """The data part of run.json: where problems came from, and each suite's file with its SHA-256.

    `paths` has where files of questions and their judges lie, for scoring.
    """
    config = run.config
    files = {}
    paths = {}
    for name, suite in run.suites.items():
        parts = suite.files(config.generated, data)
        files[name] = {"name": parts[0].name, "sha256": files_hash(parts)}
        if suite.questions is not None:
            paths[name] = {"file": str(suite.questions.file), "judge": suite.questions.judge}
    folder = str(data.resolve())
    if config.generated:
        folder = str(config.data)
    elif len(paths) == len(files):
        folder = ""
    described = {"folder": folder, "files": files}
    return described | {"paths": paths} if paths else described


def made_with(
    run: ResolvedRun, backbones: Mapping[str, Backbone], data: dict[str, Any]
) -> dict[str, Any]:
    """What a run is made with, of the process that decodes: its machine, and the models it loaded.

    Args:
        data: as `describe_data` gives it.
    """
    config = run.config
    model_types = {backbone.model.config.model_type for backbone in backbones.values()}
    plugins = used_by(config, model_types)
    environment = describe(config.device or "cpu", config.dtype or "float32")
    maps = {name: map_of(backbone.model) for name, backbone in backbones.items()}
    placed = {name: modules for name, modules in maps.items() if modules is not None}
    if placed:
        environment["device_map"] = placed
    made = {
        "environment": environment,
        "weights": {name: _weights(backbone) for name, backbone in backbones.items()},
        "data": data,
        "code": {"options": resolved_options(config, run.decoders)},
    }
    return made | {"plugins": to_builtins(plugins)} if plugins else made


def resolved_options(
    config: RunConfig, decoders: Mapping[str, Decoder]
) -> dict[str, dict[str, Any]]:
    """All options that decoders are called with, by method and suite: those that were set, and the
    defaults."""
    resolved: dict[str, dict[str, Any]] = {}
    for key, method in config.methods.items():
        resolved[key] = {}
        for suite, setting in method.suites.items():
            options = convert_options(decoders[key].options, setting.options, method.method)
            # Sets in one order.
            resolved[key][suite] = to_builtins(options, enc_hook=str, order="deterministic")
    return resolved


def _weights(backbone: Backbone) -> dict[str, Any]:
    config = backbone.model.config
    name = config.name_or_path
    commit = getattr(config, "_commit_hash", None)
    folder = Path(name)
    if commit is not None and not folder.exists():
        # A hub id, whose snapshot lies in the cache.
        file = try_to_load_from_cache(name, "config.json", revision=commit)
        folder = Path(file).parent if isinstance(file, str) else folder
    weights = {
        "name": backbone.name,
        "parameters": sum(parameter.numel() for parameter in backbone.model.parameters()),
        "max_length": backbone.max_length,
        "sha256": model_hashes(folder),
        "files": model_hashes(folder, BESIDE),
        "hub_commit": commit,
    }
    if backbone.adapter is not None:
        weights["adapter"] = model_hashes(backbone.adapter, (*WEIGHTS, *BESIDE))
    return weights
