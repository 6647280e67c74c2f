"""Many responses at once: every decoder runs as it is, and its calls of the model wait for those of
the others.

Each response is a greenlet. When all that are under way wait, their calls become one: the matrix
products of a layer run over all tokens, and each response attends to its keys
(`PlainForward.packed`), so that nothing is padded. A finished response makes room for the next one.
A ledger counts what its response costs alone.
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

MOST = 64  # responses of --batch auto
MAX_PACKED_TOKENS = 4096  # of one call on a CPU; more do not fit its caches

Result = TypeVar("Result")


def at_once(
    jobs: Iterable[Callable[[], Result]], size: int, say: Callable[[str], None] = print
) -> Iterator[Result]:
    """What jobs return, each when it is finished; `size` of them, decoding with an `in_batch`, are
    under way at a time.

    An exception of a job is raised when the others that are under way have finished; no further job
    is begun.

    Args:
        jobs: functions that decode.
        size: most jobs under way.
        say: prints a line when memory runs out; then half as many jobs are under way from there on,
            and no job is lost.
    """
    batch = _Batch(size, say)
    responses = map(greenlet, jobs)
    while True:
        while batch.failed is None and len(batch.waiting) < batch.size:
            response = next(responses, None)
            if response is None:
                break
            yield from batch.advance(response, None)
        if not batch.waiting:
            break
        for response, answer in batch.answers():
            yield from batch.advance(response, answer)
    if batch.failed is not None:
        raise batch.failed


def in_batch(backbone: Backbone) -> Backbone:
    """The backbone for one response of `at_once`: its calls wait for the others'.

    Raises:
        ValueError: a backbone whose calls cannot be made together.
    """
    if not backbone.can_pack:
        raise ValueError(
            f"{backbone.name} cannot decode in batches: it runs through CUDA graphs, is on several"
            " devices, or has layers that this code does not know"
        )
    waiting = copy(backbone)
    waiting._run = partial(_call_of_all, backbone)
    return waiting


def fitting(backbone: Backbone, length: int, free: int) -> int:
    """How many responses in sequences of `length` tokens can be under way in `free` bytes, at least
    1, at most 64.

    Each has the keys and values of a sequence, and the logits of all its positions with two copies
    in fp32.
    """
    config = backbone.model.config
    size = backbone.dtype.itemsize
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    kept = 2 * config.num_hidden_layers * config.num_key_value_heads * head * size
    logits = backbone.vocab_size * (size + 2 * 4)
    return max(1, min(MOST, free // (length * (kept + logits))))


def _call_of_all(backbone: Backbone, *call: Any) -> Tensor:
    """Takes and gives what `HeadAtPositions.infer` does; the call is made by `at_once`."""
    logits: Tensor = getcurrent().parent.switch((backbone, Call(*call)))
    return logits


class _Batch:
    """At most `size` responses under way, each a greenlet. waiting: for which call. failed: the
    first exception."""

    def __init__(self, size: int, say: Callable[[str], None]) -> None:
        self.size = size
        self._say = say
        self.waiting: dict[greenlet, tuple[Backbone, Call]] = {}
        self.failed: BaseException | None = None

    def advance(self, response: greenlet, answer: Any) -> Iterator[Any]:
        """Let a response go on until it calls a model or ends; its result, if it has ended.

        answer: logits, the exception that its call failed with, or None to begin.
        """
        try:
            with torch.inference_mode():
                if isinstance(answer, BaseException):
                    call = response.throw(answer)
                else:
                    call = response.switch(*(() if answer is None else (answer,)))
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
        """Make all calls that are waited for, those of a model together; logits or an exception for
        each."""
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
        """A call that fails among others is made again in halves: a layer puts the same keys in the
        same places."""
        try:
            with torch.inference_mode():
                return list(backbone.forward.packed(calls))
        except Exception as error:
            if len(calls) == 1:
                return [error]
            out_of_memory = isinstance(error, torch.OutOfMemoryError)
            out_of_memory |= "can't allocate memory" in str(error)
            if out_of_memory and len(calls) <= self.size:
                self.size = len(calls) // 2
                self._say(
                    f"memory ran out with {len(calls)} responses at once; from here on it is"
                    f" {self.size}"
                )
                if torch.cuda.is_initialized():
                    torch.cuda.empty_cache()
        half = len(calls) // 2
        return self._logits(backbone, calls[:half]) + self._logits(backbone, calls[half:])


def _parts(calls: dict[greenlet, Call], device: torch.device) -> Iterator[list[greenlet]]:
    """Whose calls are made together: all, but on a CPU no more than MAX_PACKED_TOKENS unless one
    call has them."""
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
