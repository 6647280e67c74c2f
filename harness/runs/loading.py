"""The models and the problems of a run, loaded by the process that decodes with them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import transformers
from msgspec import UNSET

from harness.records.schema import RunConfig
from harness.runs.config import write_generated
from model_wrappers import Backbone, load_backbone

if TYPE_CHECKING:
    from harness.runs.inference import SuiteJob
    from harness.runs.problems import Problems
    from harness.runs.worker import Worker


def worker_for(config: RunConfig, data: Path, scratch: Path) -> Worker:
    """A worker of a run in this process.

    data: folder of the problems; generated ones are written there. scratch: for what is not kept. Raises UserError or
    ValueError for what cannot be loaded.
    """
    jobs, backbones = load(config, data, scratch)
    from harness.runs.worker import Worker

    return Worker(config, data, jobs, backbones)


def load(config: RunConfig, data: Path, scratch: Path) -> tuple[list[SuiteJob], dict[str, Backbone]]:
    """The suites of a configuration, ready to decode, and the models by name.

    Raises UserError for a malformed data file or a prompt that does not fit.
    """
    if config.generated:
        write_generated(data, config)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    transformers.utils.logging.disable_progress_bar()
    names = {name for table in config.models.values() for name in table.values()}
    backbones = {
        name: load_backbone(
            name,
            config.device or "cpu",
            config.dtype,
            compiled=bool(config.compile),
            cuda_graphs=config.graphs,
            trust_remote_code=config.trust_remote_code is True,
            reads_at=None if config.reads_at is UNSET else config.reads_at,
        )
        for name in sorted(names)
    }

    problems = _problems(config, data, scratch)
    from harness.runs.inference import models_for, prepare

    return [prepare(suite, own, models_for(config, suite, backbones)) for suite, own in problems], backbones


def count_items(config: RunConfig, data: Path, scratch: Path) -> dict[str, int]:
    """How many items each suite has, without a model. Raises UserError for a malformed data file."""
    if config.generated:
        write_generated(data, config)
    return {suite: sum(map(len, own)) for suite, own in _problems(config, data, scratch)}


def _problems(config: RunConfig, data: Path, scratch: Path) -> Iterator[tuple[str, list[Problems]]]:
    # OpenCompass takes seconds to import: only now, after all that can be refused without it.
    os.environ.setdefault("HF_DATASETS_CACHE", str(scratch / "datasets"))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from harness.runs.problems import dataset_configs, load_problems

    for suite in config.suites:
        yield suite, load_problems(suite, dataset_configs(suite, config, data), config.limit)
