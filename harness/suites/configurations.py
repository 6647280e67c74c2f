"""OpenCompass's configurations of datasets, by name: prompts, postprocessors and evaluators as they ship.

OpenCompass is imported when a configuration is loaded.
"""

import inspect
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from harness.errors import UserError

DATASETS = "_datasets"  # the ending of the variables that a configuration's datasets are in
# In the place of OpenCompass's evaluators: they run every program in a sandbox.
SANDBOXED = {
    "HumanEvalEvaluator": {"type": "harness.sandbox.evaluators.SandboxedHumanEval", "k": [1]},
    "MBPPEvaluator": {"type": "harness.sandbox.evaluators.SandboxedMBPP"},
}


def shipped(configuration: str) -> list[dict[str, Any]]:
    """The datasets of a configuration as plain values. Raises UserError for one that OpenCompass does not have."""
    import opencompass
    from mmengine.config import Config

    folder = Path(opencompass.__file__).parent / "configs" / "datasets"
    files = {path.stem: path for path in sorted(folder.rglob("*.py"))}
    if configuration not in files:
        plain = {name.lower(): name for name in files}
        close = [plain[name] for name in get_close_matches(configuration.lower(), plain, n=5)]
        hint = f"close ones: {', '.join(close)}" if close else f"they are below {folder}"
        raise UserError(f"OpenCompass has no configuration {configuration}; {hint}")
    config = Config.fromfile(str(files[configuration]), format_python_code=False)
    found = [each for name, value in config.items() if name.endswith(DATASETS) for each in value]
    if not found:
        raise UserError(f"OpenCompass's configuration {configuration} names no datasets")
    return [_plain(each) for each in found]


def evaluator_of(dataset: dict[str, Any]) -> str:
    """The class of a dataset's evaluator, without its module."""
    return str(dataset["eval_cfg"]["evaluator"].get("type")).rsplit(".", 1)[-1]


def local_path(path: str) -> str:
    """Where OpenCompass looks for a dataset, below the data folder."""
    from opencompass.utils.datasets_info import DATASETS_MAPPING

    return DATASETS_MAPPING.get(path, {}).get("local") or path


def _plain(value: Any) -> Any:
    """A configuration's values as JSON has them: classes and functions by their import paths."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if inspect.isclass(value) or callable(value):
        return f"{value.__module__}.{value.__qualname__}"
    return value
