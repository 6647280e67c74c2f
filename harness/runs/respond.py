"""One response of a run: an item decoded by a method, as a record. `decode` alone is timed."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch

from harness.errors import UserError
from harness.plugins import blame
from harness.records.schema import SCHEMA
from harness.runs.meters import Meter
from harness.runs.outside import contained
from harness.runs.problems import SuiteJob
from harness.runs.responses import Response, add_unlogged, trace_of
from model_wrappers import Decoded
from model_wrappers.chat import response_text
from model_wrappers.costs import costs_of
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
    """Decode what is as long as an item, and none: a decoder may keep what it knows of prompts.

    Returns:
        Its seconds; of a response that was ended after `limit` seconds, what all of it would take.

    Raises:
        UserError: as `decoded`.
    """
    deadline = Deadline(limit)
    prompt_P = job.prompt(method, item).roll(1)
    try:
        return decoded(job, method, item, prompt_P, 0, deadline).trace.seconds
    except OutOfTime:
        return deadline.elapsed * job.models[method].gen_length / max(1, deadline.positions)


def respond(
    job: SuiteJob,
    method: str,
    item: int,
    texts: dict[int, str] | None = None,
    batched: bool = False,
    meter: Meter | None = None,
) -> Response:
    """One item by one method. `correct` is None until the run is scored.

    Args:
        texts: of a traced run those of tokens that were met before; new ones are added.
        batched: it is a job of `batches.at_once`, among others.
        meter: measures memory and energy.

    Raises:
        UserError: as `decoded`.
    """
    model = job.models[method]
    backbone = model.backbone
    prompt_P = job.prompt(method, item)
    seed = job.seed(item)
    log = None if texts is None else EventLog()
    if meter is not None:
        meter.start()
    out = decoded(job, method, item, prompt_P, seed, log, batched)
    measured = {} if meter is None else meter.stop()

    key = {"method": method, "suite": job.suite, "item": item}
    record = {
        "schema": SCHEMA,
        **key,
        "seed": seed,
        **costs_of(backbone, prompt_P, out),
        **measured,
        "text": response_text(backbone, out.tokens),
        "gold": job.golds[item],
        "correct": None,
    }
    windows = []
    for window in out.trace.windows:
        counts = {name: int(count) for name, count in vars(window).items()}
        windows.append({**key, **counts})
    if log is None or texts is None:
        return Response(record, windows)
    add_unlogged(log, out.tokens, backbone.mask_id)
    trace = trace_of((method, job.suite, item), backbone, model.gen_length, log, texts)
    return Response(record, windows, trace)


def decoded(
    job: SuiteJob,
    method: str,
    item: int,
    prompt_P: torch.Tensor,
    seed: int,
    observer: Observer | None = None,
    batched: bool = False,
) -> Decoded:
    """The response of a method to a prompt.

    Raises:
        UserError: the logits are not finite; a decoder from outside failed or changed weights. The
            message names method, suite and item.
    """
    model = job.models[method]
    outside = not isinstance(model.decoder.source, str)
    where = f"{method} on {job.suite}, item {item}"
    given = job.given[method][item] if job.given.get(method) else None
    room: AbstractContextManager[None] = nullcontext()
    if batched:
        model = model.batched()
    elif outside:
        room = contained(job.backbones, where, seed)
    try:
        with room:
            return model.respond(prompt_P, seed, observer, given=given)
    except (KeyboardInterrupt, OutOfTime, UserError):
        raise
    except BaseException as error:  # a decoder may call sys.exit, or be cancelled
        message = blame(model.decoder, error)
        if message is None:
            if not isinstance(error, ValueError):
                raise
            message = str(error)
        if batched and outside:
            message += (
                "; in a batch responses take turns at each call of the model, --batch 1 decodes"
                " them one by one"
            )
        raise UserError(f"{where}: {message}") from error
