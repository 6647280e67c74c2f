"""What is known of a checkpoint before it is loaded: published settings and numbers, its family,
its blocks.

They are for real problems. An entry of published.toml whose decoder is not in METHODS does nothing.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from model_wrappers.backbones.blocks import Blocks

# the FeF-DLLM paper's numbers, as it prints them
PAPER_TABLES = Path(__file__).with_name("paper_tables.json")
LENGTHS = ("gen_length", "block_length")
SAME = {"math500": "math"}  # suites that have the settings of another


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings, and perhaps accuracies in percent, of one source: a repository with commit and
    files, or a paper.

    They are of every decoder on models whose lower-case name has the pattern `models`, or of
    `decoder` on a family (config.json's `model_type`). accuracy: of `decoder`, or else LLaDA's, on
    `model`, by suite; judge: whose prompt and judge, if not OpenCompass's.
    """

    source: str
    suites: dict[str, dict[str, Any]]
    options: dict[str, Any] = {}
    models: str = ""
    family: str = ""
    decoder: str = ""
    model: str = ""
    accuracy: dict[str, float] = {}
    judge: str = ""

    def settings(self, suite: str) -> dict[str, Any] | None:
        """Lengths and options on a suite; None if it is not among them."""
        name = suite if suite in self.suites else SAME.get(suite, suite)
        return self.options | self.suites[name] if name in self.suites else None


PUBLISHED = msgspec.toml.decode(
    Path(__file__).with_name("published.toml").read_bytes(), type=dict[str, tuple[Published, ...]]
)["published"]


def settings_of_model(model: str, suite: str) -> dict[str, Any] | None:
    """gen_length, block_length and options that a model, a folder or hub id, was published with;
    None if unknown.

    The name decides: a config.json does not say which model of its family it belongs to.
    """
    for entry in PUBLISHED:
        found = entry.settings(suite)
        if entry.models and re.search(entry.models, Path(model).name.lower()) and found is not None:
            options = {name: value for name, value in found.items() if name not in LENGTHS}
            return {name: found[name] for name in LENGTHS} | (
                {"options": options} if options else {}
            )
    return None


def settings_of_decoder(decoder: str, family: str, suite: str) -> tuple[dict[str, Any], str]:
    """Lengths and options that a decoder was published with on a suite, and their source; ({}, "")
    where it was not."""
    for entry in PUBLISHED:
        found = entry.settings(suite)
        if (
            entry.family
            and (entry.decoder, entry.family) == (decoder, family)
            and found is not None
        ):
            return found, entry.source
    return {}, ""


def published_accuracy(
    model: str, decoder: str, suite: str, setting: dict[str, Any]
) -> tuple[float, str] | None:
    """What a decoder was published with on a suite, at these lengths and options.

    Args:
        model: a folder or hub id; its last part must be the name of the model that was measured.
        setting: lengths and options by name.

    Returns:
        The accuracy in percent, and its source; None where nothing is known.
    """
    name = Path(model).name.lower()
    measured = dict(setting)
    # a token a step, as when no steps are given
    if measured.get("steps", 0) == measured["gen_length"]:
        del measured["steps"]
    for entry in PUBLISHED:
        same_method = (entry.decoder or "llada") == decoder and Path(
            entry.model
        ).name.lower() == name
        if same_method and suite in entry.accuracy and entry.settings(suite) == measured:
            judge = f", with {entry.judge}" if entry.judge else ""
            return entry.accuracy[suite], f"published in {entry.source}{judge}"
    return None


def family_of(model: str) -> str:
    """A checkpoint's `model_type` by its config, else LLaDA's by its name; "" where it is
    unknown."""
    config = config_of(model)
    if config is not None:
        return str(config.get("model_type", "llada"))
    return "llada" if model.rsplit("/", 1)[-1].lower().startswith("llada-8b") else ""


def blocks_of(model: str) -> Blocks | None:
    """How a checkpoint attends in blocks, by its config; None for the whole sequence, or where that
    is unknown."""
    from model_wrappers.backbones import registry

    config = config_of(model)
    if config is None:
        return None
    family = registry.family_of(config)
    return None if family is None else family.blocks_of(config, _base(model))


def config_of(model: str) -> dict[str, Any] | None:
    """A checkpoint's config.json where it is here and can be read; of an adapter the base's."""
    from huggingface_hub import try_to_load_from_cache  # this and torch: not for --list

    from model_wrappers.backbones.registry import model_folder

    model = _base(model)
    file: Any = model_folder(model) / "config.json"
    if not file.exists():
        try:
            file = try_to_load_from_cache(model, "config.json")
        except ValueError:  # no hub id either
            return None
    if not isinstance(file, str | Path):
        return None
    try:
        config = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"model_type": ""}
    return config if isinstance(config, dict) else {"model_type": ""}


def _base(model: str) -> str:
    """The base of an adapter's folder; of another model itself."""
    from model_wrappers.backbones.adapters import CONFIG, base_of
    from model_wrappers.backbones.registry import model_folder

    folder = model_folder(model)
    return base_of(folder) if (folder / CONFIG).exists() else model
