"""What is known of a checkpoint before it is loaded: published settings and numbers, its family,
its blocks.

They are for real problems. An entry of published.toml whose decoder is not in METHODS does nothing.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from model_wrappers.backbones.blocks import Blocks

# the FeF-DLLM paper's numbers, as it prints them
PAPER_TABLES = Path(__file__).with_name("paper_tables.json")
LENGTHS = ("gen_length", "block_length")
SAME = {"math500": "math"}  # suites that have the settings of another
OF_A_RUN = ("temperature", "prompt")  # settings that a run has for all its methods


class Decoding(NamedTuple):
    """What the authors of a model decode it with."""

    decoder: str
    options: dict[str, Any]
    temperature: float
    prompt: str

    def settings(self) -> dict[str, Any]:
        """Options, temperature and prompt by name."""
        return {**self.options, "temperature": self.temperature, "prompt": self.prompt}


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings, and perhaps accuracies in percent, of one source: a repository with commit and
    files, or a paper.

    They are of every decoder on models whose lower-case name has the pattern `models`, or of
    `decoder` on a family (config.json's `model_type`).

    Attributes:
        decoder: of the numbers, and of models what their authors decode with ("": llada).
        decoding: with which options, temperature (usually 0) and prompt (usually the chat
            template's); a suite may have another temperature.
        greedy: what users report of LLaDA's decoder, or the authors', at temperature 0.
        accuracy: of `decoder` on `model`, by suite.
        judge: whose prompt and judge, if not OpenCompass's.
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
        """What a suite has; None if it is not among them."""
        return self.suites.get(suite, self.suites.get(SAME.get(suite, "")))

    def settings(self, suite: str) -> dict[str, Any] | None:
        """Lengths and options on a suite; None if it is not among them."""
        on_suite = self._on(suite)
        if on_suite is None:
            return None
        merged = self.options | on_suite
        return {name: value for name, value in merged.items() if name not in OF_A_RUN}

    def decoding_on(self, suite: str) -> Decoding:
        """What the authors decode a suite with."""
        merged = {"temperature": 0.0, "prompt": "chat", **self.decoding}
        temperature = (self._on(suite) or {}).get("temperature", merged["temperature"])
        options = {name: value for name, value in merged.items() if name not in OF_A_RUN}
        return Decoding(self.decoder or "llada", options, temperature, merged["prompt"])


PUBLISHED = msgspec.toml.decode(
    Path(__file__).with_name("published.toml").read_bytes(), type=dict[str, tuple[Published, ...]]
)["published"]


def settings_of_model(model: str, suite: str) -> dict[str, Any] | None:
    """gen_length, block_length and options that a model, a folder or hub id, was published with;
    None if unknown.

    """
    entry = published_of_model(model, suite)
    if entry is None:
        return None
    settings = entry.settings(suite) or {}
    lengths = {name: settings.pop(name) for name in LENGTHS}
    return lengths | {"options": settings} if settings else lengths


def published_of_model(model: str, suite: str) -> Published | None:
    """The entry of a model, a folder or hub id, that has a suite; None if unknown.

    The name decides: a config.json does not say which model of its family it belongs to.
    """
    name = Path(model).name.lower()
    for entry in PUBLISHED:
        if entry.models and re.search(entry.models, name) and entry.settings(suite) is not None:
            return entry
    return None


def greedy_report(model: str, suite: str, decoder: str, temperature: float) -> str:
    """What a model's users report of decoding it so, if that is far below its published accuracy;
    "" where nothing is known. At temperature 0 Dream's confidences tie."""
    entry = published_of_model(model, suite)
    if entry is None or temperature > 0 or decoder not in ("llada", entry.decoder):
        return ""
    return entry.greedy


def settings_of_decoder(
    decoder: str, family: str, suite: str, model: str = ""
) -> tuple[dict[str, Any], str]:
    """Lengths and options that a decoder was published with on a suite, and their source; ({}, "")
    where it was not.

    Args:
        decoder: its name.
        family: the model's.
        suite: of the problems.
        model: whose authors' options it is to have, if they use this decoder.
    """
    entry = published_of_model(model, suite)
    if entry is not None and entry.decoding_on(suite).decoder == decoder:
        return entry.decoding_on(suite).options, entry.source
    for entry in PUBLISHED:
        found = entry.settings(suite)
        if (
            entry.family
            and (entry.decoder, entry.family) == (decoder, family)
            and found is not None
        ):
            return found, entry.source
    return {}, ""


class Accuracy(NamedTuple):
    """A published accuracy in percent, its source, and what is otherwise here."""

    percent: float
    source: str
    differences: list[str]


def published_accuracy(
    model: str, decoder: str, suite: str, settings: dict[str, Any]
) -> Accuracy | None:
    """What a decoder was published with on a suite; of several numbers that with the most similar
    settings.

    Args:
        model: a folder or hub id; its last part must be the name of the model that was measured.
        settings: lengths, options, temperature and prompt here, by name.

    Returns:
        None where nothing is known.
    """
    name = Path(model).name.lower()
    ours = dict(settings)
    if ours.get("steps") == ours.get("gen_length"):  # a token a step, as when no steps are given
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
    """In what settings of a decoder differ, as "name=ours (theirs)".

    What one of them does not name has the decoder's default.
    """
    from model_wrappers.decoders import METHODS  # and torch: not for --list

    defaults = METHODS[decoder].options()
    texts = []
    for name in dict.fromkeys([*theirs, *ours]):
        default = getattr(defaults, name, None)
        here = ours.get(name, default)
        there = theirs.get(name, default)
        if here != there:
            texts.append(f"{name}={here} ({there})")
    return texts


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
