"""The timed part of a run: an item through a method, judged, as a record. What is timed is `decode`
alone."""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch

from harness.errors import UserError
from harness.plugins import blame
from harness.runs.outside import contained
from harness.runs.problems import SuiteJob
from harness.runs.responses import add_unlogged, cost_and_tokens
from model_wrappers import Decoded
from model_wrappers.chat import response_text
from model_wrappers.trace import EventLog, Floats, How, Ints, Observer

TRIAL_SECONDS = 5.0  # after which a response that is not recorded need not go on


class OutOfTime(BaseException):
    """A response was ended, for it had gone on long enough; a decoder that catches its own
    exceptions does not catch this one."""


class Deadline:
    """An observer that ends a response at its first commit after some seconds.

    Attributes:
        positions: how many of the response are committed.
    """

    def __init__(self, seconds: float) -> None:
        self.positions = 0
        self._start_time = time.perf_counter()
        self._seconds = seconds

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start_time

    def committed(self, positions: Ints, tokens: Ints, probs: Floats, how: Sequence[How]) -> None:
        self.positions += len(positions)
        if self.elapsed > self._seconds:
            raise OutOfTime

    def remasked(self, positions: Ints, tokens: Ints) -> None:
        self.positions -= len(positions)


def warm_up(job: SuiteJob, method: str, item: int, limit: float = TRIAL_SECONDS) -> float:
    """Decode what is as long as an item, and none; its seconds, of a part after `limit`.

    An item itself would be measured with all that a decoder keeps of prompts that it has seen.
    Raises UserError as `decode_item` does.
    """
    deadline = Deadline(limit)
    try:
        return _respond(
            job, method, item, job.prompt(method, item).roll(1), 0, deadline
        ).trace.seconds
    except OutOfTime:
        return deadline.elapsed * job.models[method].gen_length / max(1, deadline.positions)


def _respond(
    job: SuiteJob,
    method: str,
    item: int,
    prompt_P: torch.Tensor,
    seed: int,
    observer: Observer | None = None,
    among: bool = False,
) -> Decoded:
    model = job.models[method]
    who = f"{method} on {job.suite}, item {item}"
    outside = not isinstance(model.decoder.source, str)
    if among:
        model = model.batched()
    try:
        with contained(job.backbones, who, seed) if outside and not among else nullcontext():
            return model.respond(prompt_P, seed, observer)
    except BaseException as error:  # a decoder may call sys.exit, or be cancelled
        if isinstance(error, KeyboardInterrupt | OutOfTime):
            raise
        message = blame(model.decoder, error)
        if isinstance(error, UserError) or (message is None and not isinstance(error, ValueError)):
            raise
        said = message or str(error)
        if among and outside:
            said += (
                "; in a batch responses take turns at each call of the model, --batch 1 decodes"
                " them one by one"
            )
        raise UserError(f"{who}: {said}") from error


def decode_item(
    job: SuiteJob,
    method: str,
    item: int,
    seed: int,
    log: EventLog | None = None,
    among: bool = False,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One item by one method: its line of items.jsonl, and those of windows.jsonl.

    log: what receives the events of the response. among: others, as a job of `batches.at_once`.
    `correct` is null until the run is scored. Raises UserError, naming method, suite and item, if
    the model's logits are not finite, or a decoder from outside fails or changes weights.
    """
    model = job.models[method]
    prompt_P = job.prompt(method, item)
    out = _respond(job, method, item, prompt_P, seed, log, among)
    text = response_text(model.backbone, out.tokens)
    key = {"method": method, "suite": job.suite, "item": item}
    if log is not None:
        add_unlogged(log, out.tokens, model.backbone.mask_id)
    windows = [
        {**key, **{name: int(count) for name, count in vars(window).items()}}
        for window in out.trace.windows
    ]
    record = cost_and_tokens(key, seed, model.backbone, prompt_P, out)
    return record | {"text": text, "gold": job.golds[item], "correct": None}, windows
