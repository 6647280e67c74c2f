"""A GPU rehearsed on a CPU: tensors that say they are on cuda:0, refuse to meet tensors of the CPU,
and count what the host waits for and what it sends.

    with RehearsedGPU() as gpu:
        backbone = gpu.place(load_backbone("nano"))
        decode(backbone, ...)
    print(gpu.waits, gpu.uploads)

A wait is what makes the host wait for the device: a value that is read (item, tolist, bool, int),
what has a size that depends on values (nonzero, a mask as an index), a copy to the CPU, and a copy
to the device that does not say non_blocking. An upload is a copy to the device. Numbers are those
of the CPU, so tokens must be, too.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

from model_wrappers.backbones.mixtures import CanvasBackbone
from model_wrappers.backbones.model import Backbone
from model_wrappers.backbones.plain import ModelForward

CUDA = torch.device("cuda", 0)
# Operators with a result that the host reads, or of a size that depends on values.
WAITING = {
    "nonzero",
    "_local_scalar_dense",
    "masked_select",
    "equal",
    "is_nonzero",
    "_unique2",
    "unique_dim",
    "repeat_interleave",
}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
DECORATED = [(Backbone, "logits"), (Backbone, "extend"), (CanvasBackbone, "denoise")]
READING = {"item", "tolist", "__bool__", "__int__", "__float__", "__index__"}


class Rehearsed(Tensor):
    """A tensor that is said to be on the GPU. inner: its values."""

    inner: Tensor
    gpu: RehearsedGPU

    @staticmethod
    def __new__(cls, inner: Tensor, gpu: RehearsedGPU) -> Rehearsed:
        made: Rehearsed = Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device="cpu",
            requires_grad=False,
        )
        return made

    def __init__(self, inner: Tensor, gpu: RehearsedGPU) -> None:
        self.inner = inner
        self.gpu = gpu

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        flat, _ = tree_flatten((args, kwargs or {}))
        gpu = next(value.gpu for value in flat if isinstance(value, Rehearsed))
        return gpu.run(function, args, kwargs or {})

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"Rehearsed({self.inner!r})"


class RehearsedGPU(TorchFunctionMode):
    """What happened on the rehearsed GPU.

    Attributes:
        waits: how often the host waited, by line of model_wrappers.
        uploads: copies to the device, the same.
        sent_bytes: of these copies.
        kernels: operators that made a new tensor or changed one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.clear()
        self._stack = ExitStack()

    def clear(self) -> None:
        """Count from zero."""
        self.waits: Counter[str] = Counter()
        self.uploads: Counter[str] = Counter()
        self.sent_bytes = 0
        self.kernels = 0

    def __enter__(self) -> RehearsedGPU:
        super().__enter__()
        values: dict[str, Callable[..., Any]] = {
            "synchronize": lambda *_: None,
            "is_available": lambda: True,
            "is_initialized": lambda: False,
            "get_device_capability": lambda *_: (8, 0),
            "current_device": lambda: 0,
            "current_stream": lambda *_: None,
            "Event": RehearsedEvent,
            "get_device_name": lambda *_: "a rehearsed GPU",
        }
        for name, value in values.items():
            self._stack.enter_context(patch.object(torch.cuda, name, value))
        # Some operators make tensors of a kind of their own of those of inference mode.
        self._stack.enter_context(patch.object(torch, "inference_mode", torch.no_grad))
        self._stack.enter_context(torch.no_grad())
        for kind, name in DECORATED:
            plain = getattr(kind, name).__wrapped__
            self._stack.enter_context(patch.object(kind, name, plain))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()
        super().__exit__(*error)

    def put(self, tensor: Tensor) -> Rehearsed:
        """A tensor of the CPU, on the device."""
        return tensor if isinstance(tensor, Rehearsed) else Rehearsed(tensor, self)

    def place(self, backbone: Backbone) -> Backbone:
        """A backbone with its weights on the device."""
        self.place_module(backbone.model, trained=False)
        # The forward keeps the weights that it was made of.
        backbone.forward = ModelForward(backbone.model)
        backbone._run = backbone.forward
        return backbone

    def place_module(self, model: torch.nn.Module, trained: bool) -> None:
        """Put the weights of a model on the device; trained: they take gradients."""
        for module in model.modules():
            for name, weight in module._parameters.items():
                if weight is not None:
                    moved = self.put(weight.data)
                    module._parameters[name] = torch.nn.Parameter(moved, requires_grad=trained)
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = self.put(buffer)
            for name, value in list(vars(module).items()):
                if isinstance(value, Tensor):
                    setattr(module, name, self.put(value))

    def _note(self, counter: Counter[str], name: str) -> None:
        """Count, at the innermost line of model_wrappers."""
        for frame in reversed(traceback.extract_stack(limit=30)):
            if "/model_wrappers/" in frame.filename and "/tests/" not in frame.filename:
                place = frame.filename.rpartition("/model_wrappers/")[2]
                counter[f"{name} {place}:{frame.lineno} {frame.line}"] += 1
                return

    def _upload(self, tensor: Tensor, waits: bool) -> Rehearsed:
        self._note(self.uploads, "upload")
        self.sent_bytes += tensor.numel() * tensor.element_size()
        if waits:
            self._note(self.waits, "upload that the host waits for")
        return Rehearsed(tensor.clone(), self)

    def run(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator that a tensor of the device takes part in."""
        name = function.overloadpacket.__name__
        self.kernels += 1
        self._check_devices(name, args, kwargs)
        if name in WAITING:
            self._note(self.waits, name)
        if name in INDEXING:
            self._note_indices(args[1])
        if name == "copy_" and not isinstance(args[0], Rehearsed):
            self._note(self.waits, "copy to the CPU")
        if name == "copy_" and not isinstance(args[1], Rehearsed) and args[1].dim() > 0:
            self._note(self.uploads, "copy_")
            self._note(self.waits, "copy_ that the host waits for")
        values, named = tree_map(self._inner, args), tree_map(self._inner, kwargs)
        if named.get("device") is not None:
            named["device"] = torch.device("cpu")
        if name == "histc":  # CUDA counts integers, the CPU floats alone
            counted = function(values[0].float(), *values[1:], **named)
            return self._outer(counted.to(values[0].dtype))
        result = function(*values, **named)
        if name.endswith("_") and not name.endswith("__") and isinstance(args[0], Rehearsed):
            return args[0]
        if "out" in kwargs:
            return kwargs["out"]
        return tree_map(self._outer, result)

    @staticmethod
    def _inner(value: Any) -> Any:
        return value.inner if isinstance(value, Rehearsed) else value

    def _outer(self, value: Any) -> Any:
        return Rehearsed(value, self) if isinstance(value, Tensor) else value

    def _check_devices(self, name: str, args: Any, kwargs: Any) -> None:
        """Refuse what CUDA refuses: a tensor of the CPU, unless it is a number or an index."""
        if name in INDEXING or name in ("_to_copy", "copy_", "to"):
            return
        flat, _ = tree_flatten((args, kwargs))
        for value in flat:
            if isinstance(value, Tensor) and not isinstance(value, Rehearsed) and value.dim() > 0:
                raise RuntimeError(
                    f"{name}: expected all tensors to be on the same device, but one of shape"
                    f" {tuple(value.shape)} is on the CPU"
                )

    def _note_indices(self, indices: Any) -> None:
        for index in indices:
            if not isinstance(index, Tensor):
                continue
            if index.dtype == torch.bool:
                self._note(self.waits, "a mask as an index")
            if not isinstance(index, Rehearsed):
                self._note(self.uploads, "an index of the CPU")
                self._note(self.waits, "an index of the CPU")

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        on_device = bool(args) and isinstance(args[0], Rehearsed)
        if name == "__get__" and on_device:
            attributes = {Tensor.is_cuda: True, Tensor.is_cpu: False, Tensor.device: CUDA}
            attribute = getattr(function, "__self__", None)
            if attribute in attributes:
                return attributes[attribute]
        if name in READING and on_device:
            self._note(self.waits, name)
            return getattr(args[0].inner, name)()
        if name == "__setitem__" and on_device and not isinstance(args[2], Tensor):
            self._note(self.waits, "a number that is set")
        if name == "numpy" and on_device:
            raise TypeError("a tensor of cuda:0 has no numpy array; copy it to the CPU first")
        if name in ("to", "cpu", "cuda") and isinstance(args[0], Tensor):
            return self._moved(function, name, args, kwargs)
        if kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cuda":
            kwargs["device"] = "cpu"
            made = function(*args, **kwargs)
            if name in ("tensor", "as_tensor"):
                return self._upload(made, waits=True)
            self.kernels += 1
            return self.put(made)
        return function(*args, **kwargs)

    def _moved(self, function: Any, name: str, args: Any, kwargs: Any) -> Any:
        """`tensor.to`, `tensor.cpu` and `tensor.cuda`."""
        source, *rest = args
        named = [value for value in rest if isinstance(value, str | torch.device)]
        device = kwargs.pop("device", None)
        device = named[0] if named else device
        like = next((value for value in rest if isinstance(value, Tensor)), None)
        if like is not None:
            device = CUDA if isinstance(like, Rehearsed) else "cpu"
            rest = [like.dtype]
        if name != "to":
            device = name
        waits = not kwargs.pop("non_blocking", False)
        kwargs.pop("copy", None)
        dtypes = [value for value in rest if isinstance(value, torch.dtype)]
        kwargs = {key: value for key, value in kwargs.items() if value is not None}
        target = None if device is None else torch.device(device).type
        if target == "cuda" and not isinstance(source, Rehearsed):
            source = self._upload(source, waits)
        elif target == "cpu" and isinstance(source, Rehearsed):
            self._note(self.waits, "copy to the CPU")
            source = source.inner.clone()
        if dtypes or kwargs:
            return Tensor.to(source, *dtypes, **kwargs)
        return source


class RehearsedEvent:
    """An event of the GPU's clock, which stands still."""

    def __init__(self, enable_timing: bool = False) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        """Note the time."""

    def elapsed_time(self, other: RehearsedEvent) -> float:
        """Milliseconds until another event."""
        return 0.0
