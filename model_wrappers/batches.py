"""Decode many responses at once: decoders run unchanged, and their model calls are made together.

Each response is a greenlet, which stops at its next call of the model. When all running responses
have stopped, their calls become one: the matrix products of a layer run over all tokens, and each
response attends to its own keys (`PlainForward.packed`), so that nothing is padded. A finished
response makes room for the next one. A ledger counts the costs of its own response only.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import partial
from typing import Any, TypeVar

import torch
from greenlet import getcurrent, greenlet
from torch import Tensor

from model_wrappers.backbones.model import Backbone
from model_wrappers.backbones.plain import Call

MOST_AT_ONCE = 64  # the most responses at once with --batch auto
MAX_PACKED_TOKENS = 4096  # tokens of one call on a CPU; more do not fit its caches

Result = TypeVar("Result")


def at_once(jobs: Iterable[Callable[[], Result]], size: int) -> Iterator[Result]:
    """Run jobs, `size` of them at a time, and yield each result when it is finished.

    If a job raises an exception, no further job is started, and the exception is raised when the
    running ones have finished. If memory runs out, half as many jobs run at a time from then on,
    and no job is lost; a line says so.

    Args:
        jobs: functions that decode with a backbone of `in_batch`.
        size: the most jobs that run at a time.
    """
    batch = _Batch(size)
    responses = map(greenlet, jobs)
    while True:
        while batch.failed is None and len(batch.waiting) < batch.size:
            response = next(responses, None)
            if response is None:
                break
            yield from batch.advance(response, None)
        if not batch.waiting:
            break
        # All running responses wait: make their calls, and let each go on with its logits.
        for response, answer in batch.answers():
            yield from batch.advance(response, answer)
    if batch.failed is not None:
        raise batch.failed


def in_batch(backbone: Backbone) -> Backbone:
    """A copy of a backbone that `can_pack`, for responses of `at_once`: its calls wait for those of
    the others."""
    batched = copy(backbone)
    batched._run = partial(_hand_over, backbone)
    return batched


def fitting(backbone: Backbone, length: int, free: int) -> int:
    """The number of responses, 1 to 64, that can run at once in `free` bytes.

    A response is taken to need the keys and values of its sequence of `length` tokens, and the
    logits of all positions with two copies in fp32.
    """
    config = backbone.model.config
    size = backbone.dtype.itemsize
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cache_bytes = 2 * config.num_hidden_layers * config.num_key_value_heads * head_dim * size
    logits_bytes = backbone.vocab_size * (size + 2 * 4)
    return max(1, min(MOST_AT_ONCE, free // (length * (cache_bytes + logits_bytes))))


def _hand_over(backbone: Backbone, *call: Any) -> Tensor:
    """Hand a call over to `at_once`, and return its logits; in place of `HeadAtPositions.infer`."""
    # Switching to the parent stops this response's greenlet until `at_once` switches back.
    logits: Tensor = getcurrent().parent.switch((backbone, Call(*call)))
    return logits


class _Batch:
    """The running responses, at most `size`, each a greenlet.

    Attributes:
        waiting: the call that each response waits for.
        failed: the first exception of a response, if there was one.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.waiting: dict[greenlet, tuple[Backbone, Call]] = {}
        self.failed: BaseException | None = None

    def advance(self, response: greenlet, answer: Any) -> Iterator[Any]:
        """Let a response run until it calls a model or ends; yield its result if it has ended.

        Args:
            response: the greenlet.
            answer: the logits of its call, the exception that the call failed with, or None to
                start the response.
        """
        try:
            # The mode belongs to the thread, not to a greenlet: each switch must set it again.
            with torch.inference_mode():
                if isinstance(answer, BaseException):
                    call = response.throw(answer)
                elif answer is None:
                    call = response.switch()
                else:
                    call = response.switch(answer)
        # All others are raised once the running responses have finished (`at_once`).
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            self.failed = self.failed or error
            return
        if not response.dead:
            self.waiting[response] = call
        elif call is not None:
            yield call

    def answers(self) -> list[tuple[greenlet, Tensor | Exception]]:
        """Make all calls that responses wait for, those of a model together.

        Returns:
            Each response with the logits of its call, or with the exception of a failed call.
        """
        waiting = self.waiting
        self.waiting = {}
        by_model: defaultdict[Backbone, dict[greenlet, Call]] = defaultdict(dict)
        for response, (backbone, call) in waiting.items():
            by_model[backbone][response] = call
        answers: list[tuple[greenlet, Tensor | Exception]] = []
        for backbone, calls in by_model.items():
            for part in _parts(calls, backbone.device):
                logits = self._logits(backbone, [calls[response] for response in part])
                answers += zip(part, logits, strict=True)
        return answers

    def _logits(self, backbone: Backbone, calls: list[Call]) -> list[Tensor | Exception]:
        """Logits of each call, all made as one.

        If that fails, halves are tried, down to single calls, whose exceptions are returned. A call
        may be repeated, as a layer then puts the same keys in the same places of its cache.
        """
        try:
            with torch.inference_mode():
                return list(backbone.forward.packed(calls))
        except Exception as error:
            if len(calls) == 1:
                return [error]
            out_of_memory = isinstance(error, torch.OutOfMemoryError)
            out_of_memory |= "can't allocate memory" in str(error)
            # Only a failure at the present size or below lowers it: both halves may fail alike.
            if out_of_memory and len(calls) <= self.size:
                self.size = len(calls) // 2
                print(
                    f"memory ran out with {len(calls)} responses at once; from here on it is"
                    f" {self.size}"
                )
                if torch.cuda.is_initialized():
                    torch.cuda.empty_cache()
        half = len(calls) // 2
        return self._logits(backbone, calls[:half]) + self._logits(backbone, calls[half:])


def _parts(calls: dict[greenlet, Call], device: torch.device) -> Iterator[list[greenlet]]:
    """Divide responses into parts whose calls are made together: one part, but on a CPU parts of at
    most MAX_PACKED_TOKENS unless a single call has more."""
    part: list[greenlet] = []
    total = 0
    for response, call in calls.items():
        count = call.ids_BN.numel()
        if part and device.type == "cpu" and total + count > MAX_PACKED_TOKENS:
            yield part
            part = []
            total = 0
        part.append(response)
        total += count
    yield part
