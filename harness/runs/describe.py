"""The parts of run.json that say what a run was made with: machine, weights, problems, options and
plugins."""

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

    Args:
        run: the run, with its suites.
        data: the folder of the problems, real or generated.

    Returns:
        `folder`, `files` by suite and, if there are files of questions, `paths`: where those files
        and their judges are, for scoring.
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
        # Every suite is a file of questions, whose own path counts.
        folder = ""
    described = {"folder": folder, "files": files}
    return described | {"paths": paths} if paths else described


def made_with(
    run: ResolvedRun, backbones: Mapping[str, Backbone], data: dict[str, Any]
) -> dict[str, Any]:
    """What run.json says of the process that decodes: its machine, and the models that it loaded.

    Args:
        run: the run.
        backbones: the loaded models by name.
        data: as `describe_data` returns it.

    Returns:
        `environment`, `weights`, `data`, `code` and, if there are any, `plugins`.
    """
    config = run.config
    model_types = {backbone.model.config.model_type for backbone in backbones.values()}
    plugins = used_by(config, model_types)
    environment = describe(config.device or "cpu", config.dtype or "float32")
    maps = {name: map_of(backbone.model) for name, backbone in backbones.items()}
    device_maps = {name: modules for name, modules in maps.items() if modules is not None}
    if device_maps:
        environment["device_map"] = device_maps
    description = {
        "environment": environment,
        "weights": {name: _weights(backbone) for name, backbone in backbones.items()},
        "data": data,
        "code": {"options": resolved_options(config, run.decoders)},
    }
    return description | {"plugins": to_builtins(plugins)} if plugins else description


def resolved_options(
    config: RunConfig, decoders: Mapping[str, Decoder]
) -> dict[str, dict[str, Any]]:
    """All options that decoders are called with, by method and suite, defaults included.

    Defaults are recorded too, so that --resume refuses a run whose code has others by now.
    """
    resolved: dict[str, dict[str, Any]] = {}
    for key, method in config.methods.items():
        resolved[key] = {}
        for suite, setting in method.suites.items():
            options = convert_options(decoders[key].options, setting.options, method.method)
            # Deterministic: a set has another order in every process, and would look like a change.
            resolved[key][suite] = to_builtins(options, enc_hook=str, order="deterministic")
    return resolved


def _weights(backbone: Backbone) -> dict[str, Any]:
    config = backbone.model.config
    name = config.name_or_path
    commit = getattr(config, "_commit_hash", None)
    folder = Path(name)
    if commit is not None and not folder.exists():
        # A hub id: its files are in the snapshot of this commit in the cache.
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
