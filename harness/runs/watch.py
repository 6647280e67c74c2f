"""What a decoder from outside may not change: read before and after each response, outside of what is timed, and in a
batch, where responses take turns, before each call of the model and at the end.

Of weights samples are read, and what an installed package keeps is not looked into, so it finds accidents, not lies.
"""

import hashlib
import inspect
import io
import os
import pickle
import random
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.nn.modules import module as global_hooks
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from harness.errors import UserError
from model_wrappers import Backbone
from model_wrappers.backbones.protocol import CallCounter

OURS = ("harness", "model_wrappers")
WRITTEN = ("numpy", "pandas")  # installed packages whose objects are state
SAMPLE = 64  # values of each tensor that are read, or somewhat more


@contextmanager
def unchanged(backbones: Collection[Backbone], who: str) -> Iterator[None]:
    """Raise UserError if the block leaves what `_state` reads other than before.

    who: the method, suite and item that decode in it, for the message.
    """
    before = _state(backbones)
    yield
    after = _state(backbones)
    changed = [name for name in before if before[name] != after[name]]
    if changed:
        raise UserError(
            f"{who}: the decoder leaves {', '.join(changed)} other than before, and every row after it would be "
            "decoded with that; let it put back what it changes, and draw from request.sampler alone"
        )


def check_shared(
    before: dict[Any, Any], who: str, function: Callable[..., Any], backbones: Collection[Backbone]
) -> None:
    """Raise UserError if what all responses of a batch share is other than before this one."""
    now = shared_by(function, backbones)
    # A module that was imported since is not yet anyone's state.
    known = {name[0] for name in before if isinstance(name, tuple)}
    changed = [name for name in now if now[name] != before.get(name) and (name in before or name[0] in known)]
    if changed:
        names = [name if isinstance(name, str) else f"its {name[1]}" for name in changed]
        raise UserError(
            f"{who}: the decoder leaves {', '.join(names)} other than before while it waits for the model, and the "
            "other responses of the batch would be decoded with that; let it keep what it needs in local variables, "
            "or give --batch 1"
        )


def shared_by(function: Callable[..., Any], backbones: Collection[Backbone]) -> dict[Any, Any]:
    """What responses of a batch share: `_state`, and what the decoder can reach."""
    return _state(backbones) | _seen_by(function)


def _seen_by(function: Callable[..., Any]) -> dict[tuple[str, str], Any]:
    """What a function from outside can reach, as `_Content` has it: by module and name the globals of its module, of
    those beside it, and of those of a user's that they lead to."""
    inner = function
    while isinstance(inner, partial):
        inner = inner.func
    first = getattr(inner, "__module__", None) or type(inner).__module__
    folder = str(Path(getattr(sys.modules.get(first), "__file__", None) or "/nowhere/-").parent)
    names = [first, *_modules_in(folder, len(sys.modules))]
    package = first.partition(".")[0]
    found: dict[tuple[str, str], Any] = {(first, "arguments"): _content(function, package)[0]}
    modules = dict.fromkeys(name for name in names if _is_from_outside(name, package))
    queue = [*modules]
    for name in queue:
        for key, value in [*vars(sys.modules[name]).items()] if name in sys.modules else []:
            if not _is_special(key):
                found[name, key], more = _content(value, package)
                queue += [each for each in more if each not in modules]
                modules |= dict.fromkeys(more)
    return found


@lru_cache
def _modules_in(folder: str, imported: int) -> list[str]:
    """The modules of the files below a folder, and those that a program made of no file, but for the script that began
    it all. imported: how many there are."""
    files = {name: vars(each).get("__file__") for name, each in [*sys.modules.items()] if inspect.ismodule(each)}
    found = [name for name, file in files.items() if file and Path(folder) in Path(file).parents]
    # Compiled packages make some too.
    packages = {name.partition(".")[0] for name, file in files.items() if file}
    of_none = [name for name, file in files.items() if not file and vars(sys.modules[name]).get("__spec__") is None]
    found += [name for name in of_none if name.partition(".")[0] not in packages and "cython" not in name]
    return [name for name in found if name[:2] != "__"]


def _is_special(name: str) -> bool:
    """Whether a name is one of Python's, as __name__ is."""
    return name.startswith("__") and name.endswith("__")


def _is_from_outside(module: str, package: str) -> bool:
    """Whether a module is a user's: of this package, or of no installed one, Python's or ours."""
    own, file = module.partition(".")[0], getattr(sys.modules.get(module), "__file__", None) or ""
    return own == package or not (own in OURS or own in sys.stdlib_module_names or "-packages" in file)


def _content(value: Any, package: str) -> tuple[bytes, list[str]]:
    """A hash of all that a value holds, and a user's modules that it leads to."""
    file = io.BytesIO()
    writer = _Content(file, package)
    with suppress(Exception):  # what nests without end is compared as far as it was written
        writer.dump(value)
    return hashlib.blake2b(file.getbuffer(), digest_size=16).digest(), [*writer.modules]


class _Content(pickle.Pickler):
    """Writes what a value holds, a user's functions with what they close over and their defaults, and his classes.

    Of what cannot be written, or is an installed package's, it writes which object it is.
    """

    def __init__(self, file: io.BytesIO, package: str) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._package, self.modules = package, dict[str, None]()

    def reducer_override(self, value: Any) -> Any:
        named = inspect.isfunction(value) or inspect.isclass(value)
        module = str((value if named else type(value)).__module__)
        itself: tuple[Any, ...] = (str, (str(id(value)),))
        if isinstance(value, torch.Tensor):
            version = None if value.is_inference() else value._version
            sample = _sample(value.detach()).float().cpu().numpy().tobytes() if value.layout == torch.strided else b""
            return (*itself, (version, sample))
        if isinstance(value, torch.Generator):
            return (*itself, value.get_state().numpy().tobytes())
        if isinstance(value, GeneratorType | CoroutineType | AsyncGeneratorType):
            frames = (getattr(value, f"{kind}_frame", None) for kind in ("gi", "cr", "ag"))
            paused = next(filter(None, frames), None)
            return (*itself, paused and (paused.f_lasti, dict(paused.f_locals)))
        if isinstance(value, memoryview):
            return (*itself, value.tobytes())
        if inspect.ismodule(value):
            if _is_from_outside(value.__name__, self._package):
                self.modules[value.__name__] = None
            return itself
        if module == "builtins" and named:
            return NotImplemented
        if named and _is_from_outside(module, self._package):
            self.modules[module] = None
            if inspect.isclass(value):
                return (*itself, {key: each for key, each in vars(value).items() if not _is_special(key)})
            cells = [_of_cell(cell) for cell in value.__closure__ or ()]
            return (*itself, [value.__defaults__, value.__kwdefaults__, cells, vars(value)])
        written = module.partition(".")[0] in (*WRITTEN, *sys.stdlib_module_names)
        if named or not (written or _is_from_outside(module, self._package)):
            return itself
        try:
            reduced = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        except Exception:
            reduced = ""
        if isinstance(reduced, str):
            return (*itself, [getattr(value, "__dict__", None), _readable(value)])
        if not _is_from_outside(module, self._package):
            return reduced
        self.modules[module] = None
        # What an object of a user's writes of itself may leave some out.
        entries = [list(each) for each in reduced[3:] if each is not None]
        return (*itself, [reduced[1:3], entries, getattr(value, "__dict__", None)])


def _readable(value: Any) -> bytes | int | None:
    """What can be read of an object that cannot be written: its bytes, or how many entries a queue has."""
    reads: tuple[Callable[[], bytes | int], ...] = (lambda: bytes(memoryview(value)), lambda: int(value.qsize()))
    for read in reads:
        with suppress(Exception):
            return read()
    return None


def _of_cell(cell: Any) -> Any:
    """What a function closes over; None where that is not set yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _state(backbones: Collection[Backbone]) -> dict[str, Any]:
    state: dict[str, Any] = {
        "the working directory": Path.cwd(),
        "the environment": dict(os.environ),
        "torch's number of threads": torch.get_num_threads(),
        "torch's default dtype": torch.get_default_dtype(),
        "torch's precision": _precision(),
        "torch's autocast": (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
        "torch's inference mode": torch.is_inference_mode_enabled(),
        "torch's modes": [*map(id, (*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()))],
        "torch's functions": _functions(),
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
        state[f"the functions of {backbone.name}"] = [*map(_function, backbone.model.modules())]
        holders = (backbone.model.config, *backbone.model.modules())
        own = (backbone.reads_at, backbone.blocks, backbone.max_length)
        state[f"the settings of {backbone.name}"] = [own, *map(_settings, holders)]
        state[f"the special tokens of {backbone.name}"] = (backbone.mask_id, backbone.eos_id, special)
    return state | {f"the weights of {backbone.name}": _weights(backbone) for backbone in backbones}


def _precision() -> list[Any]:
    """What torch computes products, convolutions and attention with."""
    backends: Any = torch.backends  # types know none of oneDNN's products
    reads: tuple[Callable[[], Any], ...] = (
        *(torch.get_float32_matmul_precision, torch.are_deterministic_algorithms_enabled),
        *(lambda: backends.cudnn.allow_tf32, lambda: backends.cudnn.deterministic, lambda: backends.mkldnn.enabled),
        *(backends.cuda.flash_sdp_enabled, backends.cuda.mem_efficient_sdp_enabled),
        *(backends.cuda.math_sdp_enabled, backends.cuda.cudnn_sdp_enabled),
        *(lambda: backends.mkldnn.matmul.fp32_precision, lambda: backends.cuda.matmul.fp32_precision),
    )
    found: list[Any] = []
    for read in reads:
        try:
            found.append(read())
        except (RuntimeError, AttributeError):  # where it was set in another way, or by an older torch
            found.append(None)
    return found


def _functions() -> list[int]:
    """Which objects torch's functions are; of the others than these some change when torch first compiles."""
    spaces = ((torch, inspect.isbuiltin), (torch.Tensor, inspect.ismethoddescriptor), (functional, inspect.isroutine))
    return [id(each) for space, is_one in spaces for each in vars(space).values() if is_one(each)]


def _function(module: torch.nn.Module) -> int:
    """Which object computes a module."""
    return id(getattr(module.forward, "__func__", module.forward))


def _settings(holder: Any) -> dict[str, Any]:
    """What a module, or a model's config, holds in plain values."""
    return {name: value for name, value in vars(holder).items() if isinstance(value, bool | int | float | str)}


def _hooks(backbone: Backbone) -> int:
    """How many hooks its modules have, without those that are ours."""
    hooks = [
        hook
        for module in backbone.model.modules()
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    ]
    hooks += [*global_hooks._global_forward_hooks.values(), *global_hooks._global_forward_pre_hooks.values()]
    return sum(not isinstance(hook, CallCounter) for hook in hooks)


@torch.inference_mode()
def _weights(backbone: Backbone) -> tuple[Any, ...]:
    """Where the tensors lie, their dtypes, and values of them."""
    tensors = {**dict(backbone.model.named_parameters()), **dict(backbone.model.named_buffers())}
    where = [(name, each.data_ptr(), each.dtype) for name, each in tensors.items()]
    return where, torch.cat([_sample(each).float() for each in tensors.values()]).cpu().numpy().tobytes()


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Values of a tensor where they lie, whatever its strides; a step of an odd number is seldom that of a column."""
    step = tensor.numel() // SAMPLE | 1
    return tensor.as_strided((-(-tensor.numel() // step),), (step,))
