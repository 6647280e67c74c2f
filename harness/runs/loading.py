"""Loading a run's models and problems in the process that decodes; and a run from its record."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from msgspec import UNSET

from harness.records.schema import RunConfig
from harness.runs.chosen import check_numbers
from harness.runs.resolve import ResolvedRun
from harness.suites.registry import suite_named, write_generated
from model_wrappers import Backbone, load_backbone
from model_wrappers.decoders import decoder_named

if TYPE_CHECKING:
    from harness.runs.problems import SuiteJob
    from harness.runs.worker import Worker


def worker_for(run: ResolvedRun, scratch: Path) -> Worker:
    """A worker that decodes a run in this process.

    Args:
        run: the run.
        scratch: a temporary folder, for generated problems and offloaded weights.

    Raises:
        UserError or ValueError: something cannot be loaded.
    """
    jobs, backbones = load(run, scratch)
    # After `load`, for this imports OpenCompass too.
    from harness.runs.worker import Worker

    return Worker(run, run.data or scratch, jobs, backbones)


def load(run: ResolvedRun, scratch: Path) -> tuple[list[SuiteJob], dict[str, Backbone]]:
    """The suites of a run, ready to decode, and its models by name.

    Args:
        run: the run.
        scratch: a temporary folder, for generated problems and offloaded weights.

    Raises:
        UserError: a data file is malformed, or a prompt does not fit a model.
    """
    config = run.config
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    transformers.utils.logging.disable_progress_bar()
    names = {name for table in config.models.values() for name in table.values()}
    place: dict[str, Any] = {"device": config.device or "cpu"}
    if config.device_map is not UNSET:
        place = {"device_map": config.device_map, "offload_folder": scratch / "offloaded"}
    backbones = {
        name: load_backbone(
            name,
            dtype=config.dtype,
            **place,
            cuda_graphs=config.graphs,
            trust_remote_code=config.trust_remote_code is True,
            reads_at=None if config.reads_at is UNSET else config.reads_at,
        )
        for name in sorted(names)
    }

    data = run.data or scratch
    jobs = []
    if isinstance(config.data, str):
        write_generated(data, config.data, config.limit, run.suites.values())
    # OpenCompass takes seconds to import: only now, after all that can be refused without it.
    # And without the tokenizers' own threads: a process that forks after using them is warned.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from harness.runs.problems import load_problems, models_for, prepare

    for suite in run.suites.values():
        problems = load_problems(suite, suite.datasets(config.generated, data), config.limit)
        # Only now is known how many problems the suite has.
        chosen = (config.items or {}).get(suite.name, ())
        check_numbers(suite.name, chosen, sum(map(len, problems)))
        models = models_for(run, suite.name, backbones)
        template = config.chat_template_args or {}
        jobs.append(
            prepare(suite, problems, models, config.draws, config.prompt == "plain", template)
        )
    return jobs, backbones


def recorded(config: RunConfig, data: dict[str, Any]) -> ResolvedRun:
    """A run from its record.

    Args:
        config: of run.json.
        data: the data part of run.json.

    Raises:
        UserError or ValueError: a suite or a decoder is not known here.
    """
    decoders = {name: decoder_named(method.method) for name, method in config.methods.items()}
    suites = {suite: suite_named(suite) for suite in config.suites}
    return ResolvedRun(config, suites, decoders, None if config.generated else Path(data["folder"]))
