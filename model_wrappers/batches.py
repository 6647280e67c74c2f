"""Many responses at once: every decoder runs as it is, and its calls of the model wait for those of the others.

Each response is a greenlet. When all that are under way wait, their calls become one: the matrix products of a layer
run over all tokens, and each response attends to its keys (`PlainForward.packed`), so that nothing is padded. A
finished response makes room for the next one. A ledger counts what its response costs alone.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from typing import Any, TypeVar

import torch
from greenlet import getcurrent, greenlet

from model_wrappers.backbones.model import Backbone
from model_wrappers.backbones.plain import Call, PlainForward
from model_wrappers.trace import Decoded

MOST = 64  # responses of --batch auto
TOGETHER = 4096  # tokens of one call on a CPU; more only leave its caches
TRIED = 4  # responses that `check_turns` is given of a decoder from outside

Result = TypeVar("Result")


def at_once(
    jobs: Iterable[Callable[[], Result]], size: int, say: Callable[[str], None] = print, together: bool = True
) -> Iterator[Result]:
    """What jobs return, each when it is finished; `size` of them, decoding with an `in_batch`, are under way at a time.

    say: prints a line when memory runs out; then half as many jobs are under way from there on, and no job is lost.
    together: whether calls that wait become one. An exception of a job is raised when the others that are under way
    have finished; no further job is begun.
    """
    batch = _Batch(size, say, together)
    begun = iter(jobs)
    while True:
        while batch.failed is None and len(batch.waiting) < batch.size and (job := next(begun, None)) is not None:
            yield from batch.advance(greenlet(job), None)
        if not batch.waiting:
            break
        for one, answer in batch.answers():
            yield from batch.advance(one, answer)
    if batch.failed is not None:
        raise batch.failed


def check_turns(jobs: Sequence[Callable[[], Decoded | str]]) -> None:
    """Raise ValueError unless responses, as jobs of `at_once`, are the same in turns as one after the other.

    Calls are not made together, so that only what the responses share can make a difference, wherever it is kept. A
    job may return a failure's message instead.
    """

    def one(number: int) -> tuple[int, Any]:
        out = jobs[number]()
        return number, out if isinstance(out, str) else (out.tokens.tolist(), out.trace.forwards)

    numbered = [partial(one, number) for number in range(len(jobs))]
    alone, in_turns = (dict(at_once(numbered, size, together=False)) for size in (1, len(jobs)))
    if alone != in_turns:
        raise ValueError(
            "responses of the decoder are others in turns than one after the other: let it keep what it needs in local "
            "variables and draw from request.sampler alone, or decode one at a time (a batch of 1)"
        )


def in_batch(backbone: Backbone, before: Callable[[], None] | None = None) -> Backbone:
    """The backbone for one response of `at_once`: its calls wait for the others', and are counted by themselves.

    before: what is done before each call waits. Raises ValueError for a backbone whose calls cannot be made together.
    """
    if not isinstance(backbone._run, PlainForward):
        raise ValueError(
            f"{backbone.name} cannot decode in batches: it runs through CUDA graphs, or has layers that "
            "this code does not know"
        )
    own = copy(backbone)
    own.calls, own._run = 0, partial(_call_of_all, backbone, before)
    return own


def fitting(backbone: Backbone, length: int, free: int) -> int:
    """How many responses in sequences of `length` tokens can be under way in `free` bytes, at least 1, at most 64.

    Each has the keys and values of a sequence, and the logits of all its positions with two copies in fp32.
    """
    config = backbone.model.config
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    values = 2 * config.num_hidden_layers * config.num_key_value_heads * head
    each = length * (values * backbone.dtype.itemsize + backbone.vocab_size * (backbone.dtype.itemsize + 2 * 4))
    return max(1, min(MOST, free // each))


def _call_of_all(backbone: Backbone, before: Callable[[], None] | None, *call: Any) -> torch.Tensor:
    """Takes and gives what `HeadAtPositions.infer` does; the call is made by `at_once`."""
    if before is not None:
        before()
    logits: torch.Tensor = getcurrent().parent.switch((backbone, Call(*call)))
    return logits


class _Batch:
    """At most `size` responses under way, each a greenlet. waiting: for which call. failed: the first exception."""

    def __init__(self, size: int, say: Callable[[str], None], together: bool) -> None:
        self.size, self._say, self._together = size, say, together
        self.waiting: dict[greenlet, tuple[Backbone, Call]] = {}
        self.failed: BaseException | None = None

    def advance(self, one: greenlet, answer: Any) -> Iterator[Any]:
        """Let a response go on until it asks or ends; its result, if it has ended.

        answer: logits, the exception that its call failed with, or None to begin.
        """
        asked: Any = None
        try:
            with torch.inference_mode():
                given = () if answer is None else (answer,)
                asked = one.throw(answer) if isinstance(answer, BaseException) else one.switch(*given)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            self.failed = self.failed or error
            return
        if not one.dead:
            self.waiting[one] = asked
        elif asked is not None:
            yield asked

    def answers(self) -> list[tuple[greenlet, torch.Tensor | Exception]]:
        """Make all calls that are waited for, those of a model together; logits or an exception for each."""
        waiting, self.waiting = self.waiting, {}
        by_model: defaultdict[int, list[greenlet]] = defaultdict(list)
        for one, (backbone, _) in waiting.items():
            by_model[id(backbone)].append(one)
        found: list[tuple[greenlet, torch.Tensor | Exception]] = []
        for own in by_model.values():
            backbone = waiting[own[0]][0]
            tokens = [waiting[one][1].ids_BN.numel() for one in own]
            for together in _parts(own, tokens, backbone.device) if self._together else ([one] for one in own):
                found += zip(together, self._logits(backbone, [waiting[one][1] for one in together]), strict=True)
        return found

    def _logits(self, backbone: Backbone, calls: list[Call]) -> list[torch.Tensor | Exception]:
        """A call that fails among others is made again in halves: a layer puts the same keys in the same places."""
        try:
            backbone.calls += 1
            with torch.inference_mode():
                return list(backbone._run.packed(calls))
        except Exception as error:
            if len(calls) == 1:
                return [error]
            out_of_memory = isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
            if out_of_memory and len(calls) <= self.size:
                self.size = len(calls) // 2
                self._say(f"memory ran out with {len(calls)} responses at once; from here on it is {self.size}")
                if torch.cuda.is_initialized():
                    torch.cuda.empty_cache()
        half = len(calls) // 2
        return self._logits(backbone, calls[:half]) + self._logits(backbone, calls[half:])


def _parts(own: list[greenlet], tokens: list[int], device: torch.device) -> Iterator[list[greenlet]]:
    """Which calls are made together: all, but on a CPU no more tokens than TOGETHER unless one has them by itself."""
    part: list[greenlet] = []
    count = 0
    for one, own_tokens in zip(own, tokens, strict=True):
        if part and device.type == "cpu" and count + own_tokens > TOGETHER:
            yield part
            part, count = [], 0
        part.append(one)
        count += own_tokens
    yield part
