"""Settings that decoders were published with, by model family and suite, each with where it stands.

They hold for real problems and models of the family alone; nano and generated problems have small lengths of their own.
An entry of a decoder that is not in METHODS does nothing. LLaDA's own settings are those of the suites
(harness/suites/). What is not here is the decoder's default and the suite's lengths.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model_wrappers.backbones.blocks import Blocks

PAPER_TABLES = Path(__file__).with_name("paper_tables.json")  # the FeF-DLLM paper's numbers, as it prints them


@dataclass(frozen=True)
class Published:
    """What a source says of a decoder on models of a family.

    source: repository, commit and files, or paper. lengths: gen_length and block_length, and options: the decoder's,
    both of all suites. suites: by name, what is theirs, lengths and options; it does not hold for other suites.
    """

    decoder: str
    family: str
    source: str
    lengths: dict[str, int]
    suites: dict[str, dict[str, Any]]
    options: dict[str, Any] = field(default_factory=dict)


# MATH was measured on its 500 problems everywhere; the settings are taken for all of it too.
KLASS = Published(
    "klass",
    "llada",
    "shkim0116/KLASS@ad87ecbe9fdef4a6e93701afbc150cb9213fbcd7 scripts/llada_*.sh",
    {"gen_length": 256, "block_length": 64},
    {
        "gsm8k": {"conf_threshold": 0.6, "kl_threshold": 0.015},
        "math": {"conf_threshold": 0.6, "kl_threshold": 0.01},
        "math500": {"conf_threshold": 0.6, "kl_threshold": 0.01},
        "humaneval": {"conf_threshold": 0.9, "kl_threshold": 0.01},
        "mbpp": {"conf_threshold": 0.7, "kl_threshold": 0.01},
    },
    {"history": 2},
)
WINO = Published(
    "wino",
    "llada",
    "Feng-Hong/WINO-DLLM@9549a1d0c3cbd9dc9b8f7cd09be8a7aac322d6fb LLaDA/configs/*.yaml",
    {"gen_length": 256, "block_length": 128},
    {
        "gsm8k": {"threshold": 0.6},
        "math": {"threshold": 0.7},
        "math500": {"threshold": 0.7},
        "humaneval": {"threshold": 0.7},
        "mbpp": {"threshold": 0.8},
    },
    {"threshold_back": 0.9},
)
# The scripts are of GSM8K and HumanEval; the paper's table has MATH and MBPP too, at the same lengths.
FAST_DLLM = "NVlabs/Fast-dLLM@24cc59e75f20a6384bae8c905965bb090b96388e llada/eval_*.sh, arXiv 2505.22618"
FAST_DLLM_SUITES: dict[str, dict[str, Any]] = {name: {} for name in ("gsm8k", "math", "math500", "humaneval", "mbpp")}
FAST_DLLM_LENGTHS = {"gen_length": 256, "block_length": 32}
THRESHOLD = Published("threshold", "llada", FAST_DLLM, FAST_DLLM_LENGTHS, FAST_DLLM_SUITES, {"tau": 0.9})
FACTOR = Published("factor", "llada", FAST_DLLM, FAST_DLLM_LENGTHS, FAST_DLLM_SUITES, {"f": 1.0})
PC_SAMPLER = Published(
    "pc_sampler",
    "llada",
    "NEUIR/PC-Sampler@8b106b09877b2f69085db1b7bd7c1cc1e935d5a5 scripts/eval_pc_sampler.sh",
    {"gen_length": 256, "block_length": 256},
    {
        "gsm8k": {},
        "math": {"gen_length": 1024, "block_length": 1024},
        "math500": {"gen_length": 1024, "block_length": 1024},
        "humaneval": {},
        "mbpp": {"gen_length": 128, "block_length": 128},
    },
    {"lambd": 0.25, "alpha": 10.0},
)
# One token a step, for accuracy; for speed the same with a threshold of 0.9.
FAST_DLLM_V2 = Published(
    "block",
    "Fast_dLLM_Qwen",
    "NVlabs/Fast-dLLM@af42f511f705a2db0d16aa63ebcfcbc26f29181d v2/eval.py, v2/eval_script.sh",
    {"gen_length": 2048, "block_length": 32},
    {"gsm8k": {}, "math": {}, "math500": {}},
    {"sub_block": 8, "threshold": 1.0},
)
LLADA2 = Published(
    "block",
    "llada2_moe",
    "ZHZisZZ/dllm@ca176752fbceec49c6b4777a2c18ae88e4eb10ed dllm/pipelines/llada2/models, the defaults of generate",
    {"gen_length": 2048, "block_length": 32},
    FAST_DLLM_SUITES,
    {"threshold": 0.95},
)
PUBLISHED = (KLASS, WINO, THRESHOLD, FACTOR, PC_SAMPLER, FAST_DLLM_V2, LLADA2)


def published_settings(decoder: str, family: str, suite: str) -> tuple[dict[str, Any], str]:
    """Lengths and options that a decoder was published with on a suite, and their source; ({}, "") where it was not."""
    for entry in PUBLISHED:
        if (entry.decoder, entry.family) == (decoder, family) and suite in entry.suites:
            return {**entry.lengths, **entry.options, **entry.suites[suite]}, entry.source
    return {}, ""


def family_of(model: str) -> str:
    """The model family of a checkpoint: the `model_type` of its config where that is here, else LLaDA's by its name.

    "" where it cannot be told. A config that is damaged is refused when the model is loaded.
    """
    config = config_of(model)
    if config is not None:
        return str(config.get("model_type", "llada"))
    return "llada" if model.rsplit("/", 1)[-1].lower().startswith("llada-8b") else ""


def blocks_of(model: str) -> Blocks | None:
    """How a checkpoint attends in blocks, by its config; None for the whole sequence, or where it cannot be told."""
    from model_wrappers.backbones import registry

    config = config_of(model)
    family = None if config is None else registry.family_of(config)
    return None if config is None or family is None else family.blocks_of(config, model)


def config_of(model: str) -> dict[str, Any] | None:
    """A checkpoint's config.json where it is here and can be read."""
    from huggingface_hub import try_to_load_from_cache  # this and torch: not for --list

    from model_wrappers.backbones.registry import model_folder

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
    except (OSError, ValueError, RecursionError):
        return {"model_type": ""}
    return config if isinstance(config, dict) else {"model_type": ""}
