"""A worker: it has the models, decodes chunks of items, and describes its machine. A run without
--workers has one, in this process.

Only `decode` is timed. A prompt is encoded once for all methods. A worker yields results one by one
to the process that records them, and writes nothing.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from msgspec import UNSET, structs

from harness.records.environment import free_bytes, receipt, seconds_of, throttled
from harness.records.schema import PromptRecord
from harness.runs.describe import describe_data, made_with
from harness.runs.meters import Meter
from harness.runs.outside import contained
from harness.runs.pool import Chunk, Queue
from harness.runs.problems import SuiteJob, prompts_of
from harness.runs.resolve import ResolvedRun
from harness.runs.respond import respond, warm_up
from harness.runs.responses import Response, Result
from harness.runs.timing import Timing, fastest_threads
from model_wrappers import Backbone
from model_wrappers.api import check_options
from model_wrappers.backbones.blocks import BlockLedger, ledgers
from model_wrappers.batches import at_once, fitting
from model_wrappers.costs import hash_of
from model_wrappers.decoders.fef import Proposal, make_verifier
from model_wrappers.opencompass_model import DiffusionModel
from model_wrappers.request import Request
from model_wrappers.sampling import Sampler

# Single passes are timed at every fifth item of a prefix-conditioned method.
PASSES_EVERY = 5
# Seconds that a number of threads is tried for.
THREADS_SECONDS = 0.2


class Worker:
    """The models and the problems of a run, ready to decode. It is a WorkerPool of one worker.

    Args:
        run: the run.
        data: the folder of the problems, real or generated.
        jobs: the suites, ready to decode.
        backbones: the models by name.

    Attributes:
        config: the run's, with the threads that were chosen here.
        description: what run.json says of the machine, the weights, the problems and the code.
    """

    size = 1

    def __init__(
        self, run: ResolvedRun, data: Path, jobs: list[SuiteJob], backbones: dict[str, Backbone]
    ) -> None:
        self.config = run.config
        self._decoders = run.decoders
        self._jobs = {job.suite: job for job in jobs}
        self._timing = Timing()
        # None in a batch, whose responses share memory and energy.
        self._meter: Meter | None = None
        if self.config.batch is UNSET:
            self._meter = Meter.of(backbones.values(), energy=self.config.timed)
        if self.config.threads is None:
            self.config = structs.replace(self.config, threads=_threads(jobs[0]))
        self._warm: set[tuple[str, str]] = set()
        # Texts of tokens by tokenizer, which a model's name stands for.
        self._texts: defaultdict[str, dict[int, str]] = defaultdict(dict)
        # Suites and methods that decode one response at a time in a run with batches.
        self._alone: set[tuple[str, str]] = set()
        if self.config.batch is not UNSET:
            for job in jobs:
                self._alone |= {
                    (job.suite, method)
                    for method, model in job.models.items()
                    if method in run.one_at_a_time or not model.can_batch()
                }
        data_description = describe_data(run, data)
        # A hash of all prompts, by which records of two runs can be compared.
        for job in jobs:
            hashes = "".join(map(hash_of, job.all_prompts))
            data_description["files"][job.suite] |= {
                "items": len(job.prompts),
                "prompts": hashlib.sha256(hashes.encode()).hexdigest()[:16],
            }
        self.description = made_with(run, backbones, data_description)

    @property
    def items(self) -> dict[str, Sequence[int]]:
        """The numbers of the items that are decoded, by suite."""
        return {
            suite: self.config.numbers(suite, len(job.prompts)) for suite, job in self._jobs.items()
        }

    @property
    def problems(self) -> dict[str, Any]:
        """The loaded problems by suite."""
        return {suite: job.problems for suite, job in self._jobs.items()}

    def results(self, queue: Queue) -> Iterator[tuple[str, Result]]:
        """See `WorkerPool`."""
        while (chunk := queue.take()) is not None:
            for result in self.decode(chunk):
                yield "", result

    def about(self) -> dict[str, Any]:
        """See `WorkerPool`."""
        return {}

    def prompts(self) -> list[PromptRecord]:
        """The prompts of all items, as records have them."""
        return [prompt for job in self._jobs.values() for prompt in prompts_of(job)]

    def receipt(self) -> dict[str, Any]:
        """The state of the machine now, see harness/records/environment.py."""
        return receipt(self.config.device or "cpu")

    def warm_up(self, suite: str, first: dict[str, int]) -> dict[str, float]:
        """Decode an item of a suite by each method without recording it.

        Args:
            suite: the suite's name.
            first: the item by method.

        Returns:
            Seconds by method.

        Raises:
            UserError: as `decode`.
        """
        self._warm |= {(suite, method) for method in first}
        return {method: warm_up(self._jobs[suite], method, item) for method, item in first.items()}

    def decode(self, chunk: Chunk) -> Iterator[Result]:
        """The responses of a chunk, each as soon as it is finished: in the chunk's order, but in a
        batch in the order in which they finish.

        In a timed run each method first decodes an item that is not recorded, disturbed responses
        are timed again, and single passes of prefix-conditioned methods are timed now and then.

        Args:
            chunk: of one suite.

        Raises:
            UserError: as `harness.runs.respond.decoded`.
        """
        job = self._jobs[chunk.suite]
        if self.config.batch is not UNSET:
            yield from self._in_batches(job, chunk)
        elif self.config.timed:
            yield from self._timed(job, chunk)
        else:
            for method, item in chunk.responses:
                yield self._response(job, method, item)

    def _timed(self, job: SuiteJob, chunk: Chunk) -> Iterator[Result]:
        for method, items in chunk.pending.items():
            if (chunk.suite, method) not in self._warm:
                self.warm_up(chunk.suite, {method: items[0]})
            for item in items:
                yield self._timing.undisturbed(partial(self._response, job, method, item))
            first = items[0]
            if self._decoders[method].prefix_conditioned and first % PASSES_EVERY == 0:
                seconds = pass_seconds(job.models[method], job.prompt(method, first))
                yield {"method": method, "suite": chunk.suite, "item": first, **seconds}

    def _in_batches(self, job: SuiteJob, chunk: Chunk) -> Iterator[Result]:
        """Decode several responses at once, except by methods that decode one at a time."""
        size = self._batch_size(job)
        groups = groupby(
            chunk.responses, lambda response: (chunk.suite, response[0]) in self._alone
        )
        for alone, group in groups:
            responses = list(group)
            if alone:
                for method, item in responses:
                    yield self._response(job, method, item)
                continue
            # A generator, so that a response begins only when the batch has room for it.
            jobs = (partial(self._response, job, *response, batched=True) for response in responses)
            with self._room(job, dict(responses)):
                yield from at_once(jobs, size)

    def _batch_size(self, job: SuiteJob) -> int:
        """The number of responses that are decoded at once: with `auto` as many as fit into half of
        the free memory."""
        size = self.config.batch
        if size == "auto":
            responses = max(model.gen_length for model in job.models.values())
            longest = max(map(len, job.all_prompts)) + responses
            # Half: `fitting` counts keys, values and logits, and no other activations.
            free = free_bytes(job.backbones[0].device) // 2
            size = min(fitting(backbone, longest, free) for backbone in job.backbones)
        assert isinstance(size, int), "a number, where it is set and not auto"
        return size

    def _room(self, job: SuiteJob, methods: Iterable[str]) -> AbstractContextManager[None]:
        """The context in which a batch of these methods decodes.

        Methods from outside may use the global random states, which the batch shares.
        """
        outside = [
            method for method in methods if not isinstance(self._decoders[method].source, str)
        ]
        if not outside:
            return nullcontext()
        where = f"{', '.join(outside)} on {job.suite}"
        return contained(job.backbones, where, self.config.seed or 0)

    def _response(self, job: SuiteJob, method: str, item: int, batched: bool = False) -> Response:
        """The response of a method to an item."""
        texts = None
        if self.config.traced:
            texts = self._texts[job.models[method].backbone.name]
        response = respond(job, method, item, texts, batched, self._meter)
        # After the response: NVML tells why clocks are low now.
        if self.config.timed and throttled(self.config.device or "cpu"):
            response.item["throttled"] = True
        return response


def _threads(job: SuiteJob) -> int:
    """The number of threads that decode fastest; with a GPU torch's default."""
    method = next(iter(job.models))
    if job.models[method].backbone.device.type != "cpu":
        return torch.get_num_threads()
    return fastest_threads(lambda: warm_up(job, method, 0, THREADS_SECONDS))


@torch.inference_mode()
def pass_seconds(model: DiffusionModel, prompt_P: torch.Tensor) -> dict[str, Any]:
    """Time a plain forward, a draft pass and the verification of a full window on a prompt.

    These seconds are the inputs of the paper's Theorem 2. The response is all masks, and for a
    block model its first block. Each pass runs once before it is timed.

    Args:
        model: of a prefix-conditioned method.
        prompt_P: LongTensor (P,).

    Returns:
        The measured fields of a PassRecord.
    """
    options: Any = check_options(model.decoder, model.options)
    backbone = model.backbone
    start = len(prompt_P)
    blocks = (
        None if backbone.blocks is None else replace(backbone.blocks, length=model.block_length)
    )
    target, draft = ledgers(
        backbone, backbone if options.draft is None else options.draft, start, blocks
    )
    grid = target.grid if isinstance(target, BlockLedger) else None
    length = model.gen_length if grid is None else grid.end(start) - start
    x_1L = torch.cat([prompt_P, torch.full((length,), backbone.mask_id)])[None]
    request = Request(target, draft, x_1L, start, length, 0.0, Sampler(0), grid=grid)
    verifier = make_verifier(request, options)
    segment = verifier.segment(list(range(start, x_1L.shape[1])))
    count = min(options.window, len(segment))
    # Any tokens will do: the cost does not depend on them.
    drafts = [backbone.eos_id] * count
    # Half of the positions: LLaDA's forwards read on average half of the response.
    half = torch.arange(start, start + max(1, length // 2))
    calls: dict[str, Callable[[], object]] = {
        "plain": lambda: target.logits(x_1L, positions=half),
        "draft": lambda: verifier.draft(segment),
        "verification": lambda: verifier.verify(segment, Proposal(drafts)),
    }
    for call in calls.values():
        call()
    seconds = {name: seconds_of(call, backbone.device) for name, call in calls.items()}
    return {"drafts": count, **seconds}
