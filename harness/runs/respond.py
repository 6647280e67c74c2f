"""One response of a run: an item decoded by a method, as a record. Only `decode` is timed."""

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
from model_wrappers.trace import CommitKind, EventLog, Floats, Ints, Observer

# Seconds after which a response that is not recorded is ended.
TRIAL_SECONDS = 5.0


class OutOfTime(BaseException):
    """A response was ended because its time was up.

    A BaseException, so that a decoder that catches exceptions of its own does not catch it.
    """


class Deadline:
    """An observer that ends a response at its first commit after some seconds.

    Args:
        seconds: after which the response is ended.

    Attributes:
        positions: the number of committed positions, without re-masked ones.
    """

    def __init__(self, seconds: float) -> None:
        self.positions = 0
        self._start_time = time.perf_counter()
        self._seconds = seconds

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start_time

    def committed(
        self, positions: Ints, tokens: Ints, probs: Floats, how: Sequence[CommitKind]
    ) -> None:
        self.positions += len(positions)
        if self.elapsed > self._seconds:
            raise OutOfTime

    def remasked(self, positions: Ints, tokens: Ints) -> None:
        self.positions -= len(positions)


def warm_up(job: SuiteJob, method: str, item: int, limit: float = TRIAL_SECONDS) -> float:
    """Decode a prompt as long as an item's, without recording the response.

    Args:
        job: the suite.
        method: the method's key.
        item: the item's number.
        limit: seconds after which the response is ended.

    Returns:
        Seconds of the response; if it was ended, an estimate for all of it.

    Raises:
        UserError: as `decoded`.
    """
    deadline = Deadline(limit)
    # Rolled by one token: a decoder may cache what it computed for a prompt, and the item itself
    # would then be timed too short.
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
    """Decode one item by one method. `correct` is None until the run is scored.

    Args:
        job: the suite.
        method: the method's key.
        item: the item's number.
        texts: in a traced run the texts of tokens by id; those of new tokens are added.
        batched: whether this is one of the jobs of `batches.at_once`.
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
    # Both are None, or neither; this tells mypy.
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

    Args:
        job: the suite.
        method: the method's key.
        item: the item's number, for messages and a partial response.
        prompt_P: LongTensor (P,), the item's prompt or another.
        seed: of the decoder's draws.
        observer: sees commits and re-masks.
        batched: whether this is one of the jobs of `batches.at_once`.

    Raises:
        UserError: the logits are not finite, or a decoder from outside failed or changed weights.
            The message names method, suite and item.
    """
    model = job.models[method]
    outside = not isinstance(model.decoder.source, str)
    where = f"{method} on {job.suite}, item {item}"
    given = job.given[method][item] if job.given.get(method) else None
    room: AbstractContextManager[None] = nullcontext()
    if batched:
        model = model.batched()
    elif outside:
        # In a batch the worker guards all responses together: they share the global random states.
        room = contained(job.backbones, where, seed)
    try:
        with room:
            return model.respond(prompt_P, seed, observer, given=given)
    except (KeyboardInterrupt, OutOfTime, UserError):
        raise
    # BaseException: a decoder may call sys.exit, or be cancelled.
    except BaseException as error:
        message = blame(model.decoder, error)
        # None: no decoder from outside is to blame. A ValueError then says what is wrong with the
        # input or the logits; anything else is a bug.
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
