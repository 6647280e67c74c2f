"""A worker: it owns the models, decodes chunks of items, and says what it is. A run without --workers has one, here.

What is timed is `decode` alone. A prompt is encoded once for all methods. Results leave one by one, for the process
that records them; a worker writes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.records.receipts import receipt
from harness.records.schema import PromptRecord, RunConfig
from harness.runs.chunks import Chunk
from harness.runs.folder import describe_data, made_with
from harness.runs.inference import SuiteJob, decode_item, item_seed, prompts_of, warm_up
from harness.runs.passes import pass_seconds
from harness.runs.results import Passes, Response, Result, Sample
from harness.runs.tracing import trace_of
from model_wrappers import METHODS, Backbone
from model_wrappers.events import EventLog


class Worker:
    """The models and the problems of a run, ready to decode.

    data: folder of the problems. jobs, backbones: as `harness.runs.loading.load` gives them. description: what
    run.json says of the machine, the weights, the problems and the code.
    """

    def __init__(self, config: RunConfig, data: Path, jobs: list[SuiteJob], backbones: dict[str, Backbone]) -> None:
        self._config, self._jobs = config, {job.suite: job for job in jobs}
        self._warm: set[tuple[str, str]] = set()
        self._texts: defaultdict[str, dict[int, str]] = defaultdict(dict)  # of tokens, by tokenizer
        described = describe_data(config, data)
        for job in jobs:
            described["files"][job.suite]["items"] = len(job.prompts)
        self.description = made_with(config, backbones, described)

    @property
    def items(self) -> dict[str, int]:
        """How many items each suite has."""
        return {suite: len(job.prompts) for suite, job in self._jobs.items()}

    def prompts(self) -> list[PromptRecord]:
        """The prompts of all items, as records have them."""
        return [prompt for job in self._jobs.values() for prompt in prompts_of(job)]

    def receipt(self) -> dict[str, Any]:
        """The machine now, as harness/records/receipts.py has it."""
        return receipt(self._config.device or "cpu")

    def warm_up(self, suite: str, first: dict[str, int]) -> dict[str, Sample]:
        """Decode an item of a suite by each method without recording it; what that cost, by method.

        first: the item by method. Raises UserError as `decode` does.
        """
        self._warm |= {(suite, method) for method in first}
        return {method: warm_up(self._jobs[suite], method, item) for method, item in first.items()}

    def decode(self, chunk: Chunk) -> Iterator[Result]:
        """The responses of a chunk in its order, each when it is finished.

        Where seconds count, each method first decodes an item that is not recorded, and after each prefix-conditioned
        one single passes are timed on one of its prompts. Raises UserError, naming
        method, suite and item, as `harness.runs.inference.decode_item` does.
        """
        job = self._jobs[chunk.suite]
        for method, items in chunk.pending.items():
            if self._config.timed and (chunk.suite, method) not in self._warm:
                self.warm_up(chunk.suite, {method: items[0]})
            model = job.models[method]
            for item in items:
                log = EventLog() if self._config.traced else None
                seed = item_seed(self._config.seed or 0, chunk.suite, item)
                record, windows = decode_item(job, method, item, seed, log)
                key = (method, chunk.suite, item)
                texts = self._texts[model.backbone.name]
                trace = None if log is None else trace_of(key, model.backbone, model.gen_length, log, texts)
                yield Response(record, windows, trace)
            if self._config.timed and METHODS[model.method].prefix_conditioned:
                costs = pass_seconds(model, job.prompts[items[0]])
                yield Passes({"method": method, "suite": chunk.suite, "item": items[0], **costs})
