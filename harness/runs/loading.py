"""The models and the problems of a run, loaded by the process that decodes with them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import transformers
from msgspec import UNSET

from harness.runs.resolve import ResolvedRun
from harness.suites.registry import write_generated
from harness.suites.spec import Suite
from model_wrappers import Backbone, load_backbone

if TYPE_CHECKING:
    from harness.runs.problems import Problems
    from harness.runs.respond import SuiteJob
    from harness.runs.worker import Worker


def worker_for(run: ResolvedRun, scratch: Path) -> Worker:
    """A worker of a run in this process. scratch: for generated problems, and what else is not kept.

    Raises UserError or ValueError for what cannot be loaded.
    """
    jobs, backbones = load(run, scratch)
    from harness.runs.worker import Worker

    return Worker(run, run.data or scratch, jobs, backbones)


def load(run: ResolvedRun, scratch: Path) -> tuple[list[SuiteJob], dict[str, Backbone]]:
    """The suites of a configuration, ready to decode, and the models by name.

    Raises UserError for a malformed data file or a prompt that does not fit.
    """
    config = run.config
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    transformers.utils.logging.disable_progress_bar()
    names = {name for table in config.models.values() for name in table.values()}
    backbones = {
        name: load_backbone(
            name,
            config.device or "cpu",
            config.dtype,
            cuda_graphs=config.graphs,
            trust_remote_code=config.trust_remote_code is True,
            reads_at=None if config.reads_at is UNSET else config.reads_at,
        )
        for name in sorted(names)
    }

    problems = _problems(run, scratch)
    from harness.runs.respond import models_for, prepare

    plain = config.prompt == "plain"
    jobs = [prepare(suite, own, models_for(run, suite.name, backbones), config.draws, plain) for suite, own in problems]
    return jobs, backbones


def _problems(run: ResolvedRun, scratch: Path) -> Iterator[tuple[Suite, list[Problems]]]:
    data = run.data or scratch
    if isinstance(run.config.data, str):
        write_generated(data, run.config.data, run.config.limit, run.suites.values())
    # OpenCompass takes seconds to import: only now, after all that can be refused without it.
    os.environ.setdefault("HF_DATASETS_CACHE", str(scratch / "datasets"))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from harness.runs.problems import load_problems

    for suite in run.suites.values():
        yield suite, load_problems(suite, suite.datasets(run.config.generated, data), run.config.limit)
