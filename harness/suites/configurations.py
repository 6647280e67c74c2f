"""OpenCompass's own configurations of datasets, by name: prompts, postprocessors and evaluators as they ship.

OpenCompass is imported when a configuration is loaded. What is changed: paths become those of the user's folder, and
nothing is ever downloaded; HumanEval's and MBPP's evaluators run every program in a sandbox.
"""

import hashlib
import inspect
import json
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.suites.registry import ALL
from harness.suites.spec import Suite

DATASETS = "_datasets"  # the ending of the variables that a configuration's datasets are in
SANDBOXED = {
    "HumanEvalEvaluator": {"type": "harness.sandbox.evaluators.SandboxedHumanEval", "k": [1]},
    "MBPPEvaluator": {"type": "harness.sandbox.evaluators.SandboxedMBPP"},
}


def configuration_hash(suite: Suite) -> str:
    """SHA-256 of a suite's configuration as it ships, with what the suite changes of it."""
    return hashlib.sha256(json.dumps(_shipped(suite), sort_keys=True).encode()).hexdigest()


def real_datasets(suite: Suite, data: Path) -> list[dict[str, Any]]:
    """OpenCompass's dataset configurations of a suite, for the real problems below `data`.

    Raises UserError for an unknown configuration, one that does not generate text, or a missing file.
    """
    found = _shipped(suite)
    for dataset in found:
        inferencer = dataset["infer_cfg"]["inferencer"]["type"]
        if not inferencer.rsplit(".", 1)[-1].endswith("GenInferencer"):
            raise UserError(f"configuration {suite.configuration} does not generate text, it uses {inferencer}")
        dataset["path"] = str(_local(suite, str(dataset.get("path", "")), data))
        dataset["eval_cfg"]["evaluator"] = SANDBOXED.get(_evaluator(dataset), dataset["eval_cfg"]["evaluator"])
    return found


def sandboxed(suite: Suite) -> bool:
    """Whether the evaluators of a suite's configuration give every program a sandbox of its own."""
    return all(_evaluator(dataset) in SANDBOXED for dataset in _shipped(suite))


def _evaluator(dataset: dict[str, Any]) -> str:
    """The class of a dataset's evaluator, without its module."""
    return str(dataset["eval_cfg"]["evaluator"].get("type")).rsplit(".", 1)[-1]


def real_files(suite: Suite, data: Path) -> list[Path]:
    """The files of a suite's real problems below `data`, in a fixed order. Raises UserError if they are missing."""
    if suite.file is not None:
        return [_present(suite, data, f"data/{suite.file}")]
    found: list[Path] = []
    for dataset in real_datasets(suite, data):
        path = Path(dataset["path"])
        found += sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    return list(dict.fromkeys(found))


def _local(suite: Suite, path: str, data: Path) -> Path:
    """Where OpenCompass would look for a dataset below the user's folder."""
    from opencompass.utils.datasets_info import DATASETS_MAPPING

    if suite.file is not None:
        _present(suite, data, f"data/{suite.file}")
    return _present(suite, data, DATASETS_MAPPING.get(path, {}).get("local") or path).resolve()


def _present(suite: Suite, data: Path, name: str) -> Path:
    """A path that exists. Raises UserError that says which file is missing, where it belongs and what wants it."""
    path = data / name
    if path.exists():
        return path
    same = [each for each in ALL if each.configuration == suite.configuration and each.file not in (None, suite.file)]
    there = [other.name for other in same if (data / f"data/{other.file}").exists()]
    hint = f"; the files of {', '.join(there)} are there" if there else ""
    raise UserError(
        f"data file for {suite.name} is missing: {path}; OpenCompass's configuration {suite.configuration} wants it "
        f"there, and --data names the folder above data/{hint}"
    )


def _shipped(suite: Suite) -> list[dict[str, Any]]:
    """The datasets of a suite's configuration as plain values, with the suite's changes."""
    if suite.configuration is None:
        raise UserError(f"suite {suite.name} has generated problems alone; leave out --data, or the suite")
    import opencompass
    from mmengine.config import Config

    folder = Path(opencompass.__file__).parent / "configs" / "datasets"
    files = {path.stem: path for path in sorted(folder.rglob("*.py"))}
    if suite.configuration not in files:
        plain = {name.lower(): name for name in files}
        close = [plain[name] for name in get_close_matches(suite.configuration.lower(), plain, n=5)]
        raise UserError(
            f"OpenCompass has no configuration {suite.configuration}"
            + (f"; close ones: {', '.join(close)}" if close else f"; they are below {folder}")
        )
    config = Config.fromfile(str(files[suite.configuration]), format_python_code=False)
    found = [each for name, value in config.items() if name.endswith(DATASETS) for each in value]
    if not found:
        raise UserError(f"OpenCompass's configuration {suite.configuration} names no datasets")
    return [_plain(each) | suite.changes for each in found]


def _plain(value: Any) -> Any:
    """A configuration's values as JSON has them: classes and functions by their import paths."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if inspect.isclass(value) or callable(value):
        return f"{value.__module__}.{value.__qualname__}"
    return value
