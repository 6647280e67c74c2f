"""A run from its configuration to recorded items: problems, models, decoding."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import transformers
from msgspec import UNSET

from harness.methods.schedule_files import describe_schedules
from harness.records.schema import RunConfig
from harness.records.store import Recorder
from harness.runs.config import write_generated
from harness.runs.folder import begin_meta, describe_data, new_or_not_at_all, session
from model_wrappers import Backbone, load_backbone

if TYPE_CHECKING:
    from harness.runs.inference import SuiteJob


def record(folder: Path, config: RunConfig, data: Path, scratch: Path) -> None:
    """Decode all that is asked for and is not recorded yet.

    data: folder of the problems; generated ones are written there. scratch: for what is not kept.
    """
    for note in describe_schedules(config):
        print(note)
    jobs, backbones = load(config, data, scratch)
    from harness.runs.inference import prompts_of, run_suite
    from harness.runs.progress import RunProgress

    described = describe_data(config, data)
    for job in jobs:
        described["files"][job.suite]["items"] = len(job.prompts)
    begun = (folder / "run.json").exists()
    begin_meta(folder, config, backbones, described)
    recorder = Recorder(folder)
    if config.traced:
        recorder.check_traced()
        recorder.write_prompts([prompt for job in jobs for prompt in prompts_of(job)])
    total, device = sum(len(job.prompts) * len(job.models) for job in jobs), config.device or "cpu"
    with new_or_not_at_all(folder, begun):
        print(announcement(jobs, recorder))
    with session(folder, device, config.timed), RunProgress(config, total, len(recorder.items)) as progress:
        for job in jobs:
            run_suite(job, recorder, config.seed or 0, config.chunk or 1, progress.finished, config.traced)


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

    # OpenCompass takes seconds to import: only now, after all that can be refused without it.
    os.environ.setdefault("HF_DATASETS_CACHE", str(scratch / "datasets"))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from harness.runs.inference import models_for, prepare
    from harness.runs.problems import dataset_configs, load_problems

    jobs = []
    for suite in config.suites:
        problems = load_problems(suite, dataset_configs(suite, config, data), config.limit)
        jobs.append(prepare(suite, problems, models_for(config, suite, backbones)))
    return jobs, backbones


def announcement(jobs: Sequence[SuiteJob], recorder: Recorder) -> str:
    """What a run will do, and for about how long: one response of each method, measured and scaled by length."""
    from harness.runs.inference import warm_up
    from harness.runs.progress import duration

    pending = {
        (job.suite, method): sum(not recorder.done(method, job.suite, item) for item in range(len(job.prompts)))
        for job in jobs
        for method in job.models
    }
    responses = sum(pending.values())
    if responses == 0:
        return "all items are decoded already"
    first = next(job for job in jobs if any(pending[job.suite, method] for method in job.models))
    measured = {method: warm_up(first, method, 0) / model.gen_length for method, model in first.models.items()}
    seconds = sum(
        count * measured[method] * job.models[method].gen_length
        for job in jobs
        for method in job.models
        if (count := pending[job.suite, method])
    )
    suites = ", ".join(f"{job.suite} {len(job.prompts)}" for job in jobs)
    return (
        f"{responses} responses to decode ({len(first.models)} methods; items: {suites}): about {duration(seconds)}, "
        "then scoring and tables"
    )
