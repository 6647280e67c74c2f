"""The timed part of a run: an item through a method, judged, as a record; a decoder from outside is watched.

What is timed is `decode` alone. The watch reads the process before and after each response, outside of what is timed,
and in a batch before each call. Of weights it reads samples, so it finds accidents, not lies.
"""

import functools
import inspect
import random
import sys
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.errors import UserError, explained
from harness.plugins import blame
from harness.runs.problems import SuiteJob
from harness.runs.responses import cost_and_tokens
from model_wrappers import Backbone, Decoded
from model_wrappers.chat import response_text
from model_wrappers.trace import EventLog


def warm_up(job: SuiteJob, method: str, item: int) -> float:
    """Decode what is as long as an item, and none; its seconds. Raises UserError as `decode_item` does.

    An item itself would be measured with all that a decoder keeps of prompts that it has seen.
    """
    return _respond(job, method, item, job.prompt(method, item).roll(1), seed=0).trace.seconds


def _respond(
    job: SuiteJob,
    method: str,
    item: int,
    prompt_P: torch.Tensor,
    seed: int,
    log: EventLog | None = None,
    among: bool = False,
) -> Decoded:
    model = job.models[method]
    outside = not isinstance(model.decoder.source, str)
    who = f"{method} on {job.suite}, item {item}" + (", or one decoded at the same time" if among else "")
    if among:
        shared = _shared(model.decoder.function, job.backbones) if outside else {}
        model = model.batched(
            partial(_check_shared, shared, who, model.decoder.function, job.backbones) if outside else None
        )
    try:
        with unchanged(job.backbones, who) if outside else nullcontext():
            out = model.respond(prompt_P, seed, log)
        if out.trace.forwards == 0:
            raise ValueError("the decoder made no forward of the model, so that there is nothing to compare")
        return out
    except BaseException as error:  # a decoder may call sys.exit, or be cancelled
        if isinstance(error, KeyboardInterrupt):
            raise
        message = blame(model.decoder, error)
        if isinstance(error, UserError) or (message is None and not isinstance(error, ValueError)):
            raise
        alone = "; in a batch responses take turns at each call of the model, --batch 1 decodes them one by one"
        said = f"{message or error}{alone if among and outside else ''}"
        raise UserError(f"{method} on {job.suite}, item {item}: {said}") from error


def decode_item(
    job: SuiteJob, method: str, item: int, seed: int, log: EventLog | None = None, among: bool = False
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One item by one method: its line of items.jsonl, and those of windows.jsonl.

    log: what receives the events of the response. among: others, as a job of `batches.at_once`. `correct` is null where
    the suite is scored after the run. Raises UserError, naming method, suite and item, if the model's logits are not
    finite, a decoder from outside fails, or the judge does.
    """
    model = job.models[method]
    prompt_P = job.prompt(method, item)
    out = _respond(job, method, item, prompt_P, seed, log, among)
    text = response_text(model.backbone, out.tokens)
    key = {"method": method, "suite": job.suite, "item": item}
    windows = [{**key, **vars(window)} for window in out.trace.windows]
    verdict, why = None, ""
    if job.judge is not None:  # whatever an evaluator from outside makes of a text
        with explained(f"{method} on {job.suite}, item {item}: its evaluator fails", Exception):
            verdict, why = job.judge.explained(job.draw(item)[0], text)
    judged = {"text": text, "gold": job.golds[item], "correct": verdict} | ({"why": why} if why else {})
    return cost_and_tokens(key, seed, model.backbone, prompt_P, out) | judged, windows


OURS = ("harness", "model_wrappers")
DEPTH, MANY = 4, 1000  # of containers in containers, of values in one
SAMPLE = 64  # values of each tensor that are read, or somewhat more


@contextmanager
def unchanged(backbones: Collection[Backbone], who: str) -> Iterator[None]:
    """Raise UserError if the block leaves weights, random states, threads or dtype other than before, or calls a model
    around its backbone, whose forwards nobody would count.

    who: the method, suite and item that decode in it, for the message.
    """
    before = _state(backbones)
    with _runs_of(backbones) as around:
        yield
    uncounted = [name for name, runs in around.items() if runs > 0]
    after = _state(backbones)
    changed = [name for name in before if before[name] != after[name]]
    if uncounted or changed:
        runs = (
            f"runs {', '.join(uncounted)} itself, and its forwards are not counted; let it call request.backbone and "
            "request.draft alone"
        )
        leaves = (
            f"leaves {', '.join(changed)} other than before, and every row after it would be decoded with that; let it "
            "put back what it changes, and draw from request.sampler alone"
        )
        raise UserError(f"{who}: the decoder {runs if uncounted else leaves}")


def _check_shared(
    before: dict[str, Any], who: str, function: Callable[..., Any], backbones: Collection[Backbone]
) -> None:
    """Raise UserError if what all responses of a batch share is other than before this one."""
    now = _shared(function, backbones)
    if changed := [name for name in now if now[name] != before.get(name)]:
        raise UserError(
            f"{who}: the decoder leaves {', '.join(changed)} other than before while it waits for the model, and the "
            "other responses of the batch would be decoded with that; let it keep what it needs in local variables, "
            "or give --batch 1"
        )


def _shared(function: Callable[..., Any], backbones: Collection[Backbone]) -> dict[str, Any]:
    """What responses of a batch share: `_state`, torch's modes, and the containers of a decoder's module."""
    modes = {
        "torch's autocast": (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
        "torch's inference mode": torch.is_inference_mode_enabled(),
    }
    return _state(backbones) | modes | {f"its {name}": held for name, held in _seen_by(function).items()}


def _seen_by(function: Callable[..., Any]) -> dict[str, Any]:
    """What a function from outside, and those that it calls, see around themselves, by name, as `_content` has it."""
    found: dict[str, Any] = {}
    functions = [function]
    for each in functions:
        each = inspect.unwrap(each.func if isinstance(each, functools.partial) else each)
        if not inspect.isfunction(each):
            continue
        seen = inspect.getclosurevars(each).nonlocals
        if _is_from_outside(each.__module__, function):
            seen = {**each.__globals__, **seen}
        functions += [value for value in seen.values() if inspect.isfunction(value) and value not in functions]
        for name, value in seen.items():
            if not name.startswith("__"):
                found[name] = _content(value, each.__module__)
    return found


def _is_from_outside(module: str, function: Callable[..., Any]) -> bool:
    """Whether a module is a user's: of the function's own package, or no installed one, Python's or ours."""
    package, file = module.partition(".")[0], getattr(sys.modules.get(module), "__file__", None) or ""
    own = package == getattr(function, "__module__", "").partition(".")[0]
    return own or not (package in OURS or package in sys.stdlib_module_names or "-packages" in file)


def _content(value: Any, module: str, depth: int = DEPTH) -> Any:
    """Of a value what differs once it, or what it holds, is another: its containers, and objects of this module."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value)
    if isinstance(value, torch.Tensor):
        return id(value), None if value.is_inference() else value._version
    if isinstance(value, np.ndarray):
        return id(value), value.tobytes()
    held: Any = ()
    if isinstance(value, dict):
        held = [*value, *value.values()]
    elif isinstance(value, list | tuple | set | frozenset | bytearray | deque):
        held = [*value]
    elif getattr(value if inspect.isclass(value) else type(value), "__module__", "") in (module, "types"):
        own = getattr(value, "__dict__", {})
        held = [*own, *own.values()]
    elif inspect.isfunction(value) and value.__module__ == module:
        held = [*vars(value).values()]
    return id(value), [_content(each, module, depth - 1) for each in held[:MANY]] if depth else None, len(held)


@contextmanager
def _runs_of(backbones: Collection[Backbone]) -> Iterator[Counter[str]]:
    """By model, how often it ran in this block without a call of its backbone, as seen at its embedding."""
    around: Counter[str] = Counter()

    with ExitStack() as stack:
        for backbone in (each for each in backbones if not each.graphed):  # a graph's replay passes no hook
            hook = partial(_count, around, backbone.name, 1)
            stack.callback(backbone.model.get_input_embeddings().register_forward_pre_hook(hook).remove)
            stack.callback(lambda each, calls: _count(around, each.name, calls - each.calls), backbone, backbone.calls)
        yield around


def _count(around: Counter[str], name: str, runs: int, *_: Any) -> None:
    around[name] += runs


def _state(backbones: Collection[Backbone]) -> dict[str, Any]:
    state: dict[str, Any] = {
        "the working directory": Path.cwd(),
        "torch's number of threads": torch.get_num_threads(),
        "torch's default dtype": torch.get_default_dtype(),
        "torch's random state": torch.get_rng_state().numpy().tobytes(),
        "Python's random state": random.getstate(),
        "numpy's random state": np.random.get_state()[1].tobytes(),  # type: ignore[union-attr,index]
    }
    if torch.cuda.is_initialized():
        state["the GPU's random state"] = torch.cuda.get_rng_state().numpy().tobytes()
    for backbone in backbones:
        tokenizer = backbone.tokenizer
        special = [] if tokenizer is None else tokenizer.all_special_ids
        state[f"the hooks of {backbone.name}"] = _hooks(backbone)
        state[f"the special tokens of {backbone.name}"] = (backbone.mask_id, backbone.eos_id, special)
    return state | {f"the weights of {backbone.name}": _weights(backbone) for backbone in backbones}


def _hooks(backbone: Backbone) -> int:
    """How many hooks its modules have, without those that are ours."""
    hooks = [
        hook
        for module in backbone.model.modules()
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    ]
    return sum(getattr(hook, "func", None) is not _count for hook in hooks)


@torch.inference_mode()
def _weights(backbone: Backbone) -> tuple[Any, ...]:
    """Where the tensors lie, their dtypes, and values of them."""
    tensors = dict(backbone.model.named_parameters())
    where = [(name, each.data_ptr(), each.dtype) for name, each in tensors.items()]
    return where, torch.cat([_sample(each).float() for each in tensors.values()]).cpu().numpy().tobytes()


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Values of a tensor where they lie, whatever its strides; a step of an odd number is seldom that of a column."""
    step = tensor.numel() // SAMPLE | 1
    return tensor.as_strided((-(-tensor.numel() // step),), (step,))
