"""Facts about a checkpoint that are known before it is loaded: published settings and numbers, its
family, its blocks.

Settings and numbers are for real problems. An entry of published.toml whose decoder is not in
METHODS has no effect.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from model_wrappers.backbones.blocks import Blocks

# The FeF-DLLM paper's numbers, as it prints them.
PAPER_TABLES = Path(__file__).with_name("paper_tables.json")
LENGTHS = ("gen_length", "block_length")
# Suites that have the settings of another one.
SAME = {"math500": "math"}
# Settings of a whole run, which no method has of its own.
OF_A_RUN = ("temperature", "prompt")


class Decoding(NamedTuple):
    """The decoder and settings with which the authors of a model decode it."""

    decoder: str
    options: dict[str, Any]
    temperature: float
    prompt: str

    def settings(self) -> dict[str, Any]:
        """Options, temperature and prompt by name."""
        return {**self.options, "temperature": self.temperature, "prompt": self.prompt}


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings, and perhaps accuracies, of one source.

    An entry with `models` is for every decoder on these models. An entry with `family` is for
    `decoder` on a family of models.

    Attributes:
        source: a repository with commit and files, or a paper.
        suites: lengths and options by suite.
        options: of all suites.
        models: a regular expression that is searched for in the lower-case name of a model.
        family: config.json's `model_type`.
        decoder: of the numbers; with `models` the decoder of the authors ("": llada).
        decoding: options, temperature (default 0) and prompt (default: the chat template) of the
            authors; a suite may have another temperature.
        greedy: what users report of LLaDA's decoder, or the authors', at temperature 0.
        model: of the accuracies.
        accuracy: percent, of `decoder` on `model`, by suite.
        judge: the source of prompt and judge, if it is not OpenCompass.
    """

    source: str
    suites: dict[str, dict[str, Any]]
    options: dict[str, Any] = {}
    models: str = ""
    family: str = ""
    decoder: str = ""
    decoding: dict[str, Any] = {}
    greedy: str = ""
    model: str = ""
    accuracy: dict[str, float] = {}
    judge: str = ""

    def _on(self, suite: str) -> dict[str, Any] | None:
        """The entry of a suite; None if there is none."""
        return self.suites.get(suite, self.suites.get(SAME.get(suite, "")))

    def settings(self, suite: str) -> dict[str, Any] | None:
        """Lengths and options on a suite; None if the source does not have it."""
        on_suite = self._on(suite)
        if on_suite is None:
            return None
        merged = self.options | on_suite
        return {name: value for name, value in merged.items() if name not in OF_A_RUN}

    def decoding_on(self, suite: str) -> Decoding:
        """The authors' decoder and settings on a suite."""
        merged = {"temperature": 0.0, "prompt": "chat", **self.decoding}
        temperature = (self._on(suite) or {}).get("temperature", merged["temperature"])
        options = {name: value for name, value in merged.items() if name not in OF_A_RUN}
        return Decoding(self.decoder or "llada", options, temperature, merged["prompt"])


PUBLISHED = msgspec.toml.decode(
    Path(__file__).with_name("published.toml").read_bytes(), type=dict[str, tuple[Published, ...]]
)["published"]


def settings_of_model(model: str, suite: str) -> dict[str, Any] | None:
    """The published gen_length, block_length and options of a model on a suite; None if unknown.

    Args:
        model: a folder or hub id.
        suite: the suite's name.
    """
    entry = published_of_model(model, suite)
    if entry is None:
        return None
    settings = entry.settings(suite) or {}
    lengths = {name: settings.pop(name) for name in LENGTHS}
    return lengths | {"options": settings} if settings else lengths


def published_of_model(model: str, suite: str) -> Published | None:
    """The entry of published.toml for a model and a suite; None if there is none.

    Args:
        model: a folder or hub id.
        suite: the suite's name.
    """
    # By name: a config.json does not say which model of its family it belongs to.
    name = Path(model).name.lower()
    for entry in PUBLISHED:
        if entry.models and re.search(entry.models, name) and entry.settings(suite) is not None:
            return entry
    return None


def greedy_report(model: str, suite: str, decoder: str, temperature: float) -> str:
    """What users report of a model at temperature 0, if its accuracy is then far below the
    published one; "" if nothing is known.

    Args:
        model: a folder or hub id.
        suite: the suite's name.
        decoder: only LLaDA's and the authors' have reports.
        temperature: above 0 there is nothing to report.
    """
    # The reports are of Dream, whose confidences tie at temperature 0.
    entry = published_of_model(model, suite)
    if entry is None or temperature > 0 or decoder not in ("llada", entry.decoder):
        return ""
    return entry.greedy


def settings_of_decoder(
    decoder: str, family: str, suite: str, model: str = ""
) -> tuple[dict[str, Any], str]:
    """The published lengths and options of a decoder on a suite, and their source; ({}, "") if
    there are none.

    Args:
        decoder: its name.
        family: of the model.
        suite: the suite's name.
        model: if its authors use this decoder, their options are returned; "" for the family's.
    """
    entry = published_of_model(model, suite)
    if entry is not None and entry.decoding_on(suite).decoder == decoder:
        return entry.decoding_on(suite).options, entry.source
    for entry in PUBLISHED:
        settings = entry.settings(suite)
        if (
            entry.family
            and (entry.decoder, entry.family) == (decoder, family)
            and settings is not None
        ):
            return settings, entry.source
    return {}, ""


class Accuracy(NamedTuple):
    """A published accuracy in percent, its source, and the differences of its settings from
    ours."""

    percent: float
    source: str
    differences: list[str]


def published_accuracy(
    model: str, decoder: str, suite: str, settings: dict[str, Any]
) -> Accuracy | None:
    """The published accuracy of a decoder on a suite.

    Args:
        model: a folder or hub id; its last part must be the name of the model that was measured.
        decoder: its name.
        suite: the suite's name.
        settings: our lengths, options, temperature and prompt, by name.

    Returns:
        Of several accuracies the one with the fewest differences; None if there is none.
    """
    name = Path(model).name.lower()
    ours = dict(settings)
    # As many steps as tokens is the default, and no difference from a source that names no steps.
    if ours.get("steps") == ours.get("gen_length"):
        ours.pop("steps", None)
    known = []
    for entry in PUBLISHED:
        decoding = entry.decoding_on(suite)
        same_model = Path(entry.model).name.lower() == name
        if suite not in entry.accuracy or not same_model or decoding.decoder != decoder:
            continue
        theirs = (entry.settings(suite) or {}) | decoding.settings()
        judge = f", with {entry.judge}" if entry.judge else ""
        source = f"published in {entry.source}{judge}"
        known.append(Accuracy(entry.accuracy[suite], source, differences(decoder, ours, theirs)))
    return min(known, key=lambda accuracy: len(accuracy.differences), default=None)


def differences(decoder: str, ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """The differences between two settings of a decoder, as "name=ours (theirs)".

    Args:
        decoder: its name.
        ours: settings by name; what is missing has the decoder's default.
        theirs: the published ones, in the same way.
    """
    # Imports torch, which --list does not wait for.
    from model_wrappers.decoders import METHODS

    defaults = METHODS[decoder].options()
    texts = []
    for name in dict.fromkeys([*theirs, *ours]):
        default = getattr(defaults, name, None)
        value = ours.get(name, default)
        published = theirs.get(name, default)
        if value != published:
            texts.append(f"{name}={value} ({published})")
    return texts


def family_of(model: str) -> str:
    """A checkpoint's `model_type`; "" if it is unknown."""
    # Without a config, as before a download, the name of LLaDA's own checkpoints decides.
    config = config_of(model)
    if config is not None:
        return str(config.get("model_type", "llada"))
    return "llada" if model.rsplit("/", 1)[-1].lower().startswith("llada-8b") else ""


def blocks_of(model: str) -> Blocks | None:
    """How a checkpoint attends in blocks, by its config; None if it attends to the whole sequence,
    or if its config is unknown."""
    from model_wrappers.backbones import registry

    config = config_of(model)
    if config is None:
        return None
    family = registry.family_of(config)
    return None if family is None else family.blocks_of(config, _base(model))


def config_of(model: str) -> dict[str, Any] | None:
    """A checkpoint's config.json, of an adapter the base model's; None if it is not on this
    machine.

    A damaged file counts as a config of an unknown model type.
    """
    # Slow imports, which --list does not wait for.
    from huggingface_hub import try_to_load_from_cache

    from model_wrappers.backbones.registry import model_folder

    model = _base(model)
    file: Any = model_folder(model) / "config.json"
    if not file.exists():
        try:
            file = try_to_load_from_cache(model, "config.json")
        # Not a hub id either.
        except ValueError:
            return None
    if not isinstance(file, str | Path):
        return None
    try:
        config = json.loads(Path(file).read_bytes())
    except (OSError, ValueError):
        return {"model_type": ""}
    return config if isinstance(config, dict) else {"model_type": ""}


def _base(model: str) -> str:
    """The base model of an adapter's folder; any other model unchanged."""
    from model_wrappers.backbones.adapters import CONFIG, base_of
    from model_wrappers.backbones.registry import model_folder

    folder = model_folder(model)
    return base_of(folder) if (folder / CONFIG).exists() else model
