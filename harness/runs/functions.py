"""What a run notes of a method that is a function, to go on with the same one alone: its code, and what it holds.

A decoder's own globals are not looked at: what it keeps there is its state, which harness/runs/watch.py watches.
"""

import hashlib
import inspect
import json
import sys
from collections import deque
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import CellType, CodeType
from typing import Any

from harness.plugins import brings
from harness.records.files import code_hash
from model_wrappers.decoders import Decoder, file_of


def function_of(decoder: Decoder) -> dict[str, Any]:
    """What a run notes of a decoder that is a function and of no plugin: the SHA-256 of its code, as `load` has it, and
    a hash of what it closes over or is bound to; {} for another one."""
    function = decoder.source
    if isinstance(function, str) or brings(decoder):
        return {}
    inner = function
    while isinstance(inner, partial):
        inner = inner.func
    path = Path(file_of(inner) or _file_of(type(inner)) or "-")
    told = json.dumps(_told(function, set())).encode()
    return {
        "sha256": code_hash(path) if path.is_file() else "",  # a notebook's has no file, and its code below
        "holds": hashlib.sha256(told).hexdigest()[:16],
    }


def _file_of(kind: type) -> str:
    """The file of a class's module, "" without one."""
    return str(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")


def _told(value: Any, seen: set[int]) -> Any:
    """What a value holds, the same in every process: of functions code and what they close over, of objects, unless
    they are of an installed package, attributes, of arrays their numbers. seen: by `id` what is told already."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    if id(value) in seen:
        return "again"
    seen.add(id(value))
    kind: Any = value if inspect.isclass(value) or inspect.isroutine(value) else type(value)
    name = f"{getattr(kind, '__module__', None)}.{kind.__qualname__}"
    parts: Any = ()
    if isinstance(value, CodeType):
        parts = [value.co_code.hex(), value.co_names, value.co_consts]
    elif inspect.isfunction(value):
        cells = [each.cell_contents for each in value.__closure__ or () if each != CellType()]
        parts = [value.__code__, value.__defaults__, value.__kwdefaults__, cells, vars(value)]
    elif isinstance(value, partial):
        parts = [value.func, value.args, value.keywords, vars(value)]
    elif inspect.ismethod(value):
        parts = [value.__func__, value.__self__]
    elif inspect.ismodule(value):
        return [name, value.__name__]
    elif inspect.isbuiltin(value):
        parts = [value.__self__]
    elif isinstance(value, Mapping):
        parts = [part for pair in value.items() for part in pair]
    elif isinstance(value, set | frozenset):
        return [name, *sorted(json.dumps(_told(each, seen)) for each in value)]
    elif isinstance(value, list | tuple | deque):
        parts = value
    elif hasattr(value, "__array__"):  # tensors too
        dense = value.detach().cpu().double() if hasattr(value, "detach") else value
        array = dense.__array__()
        return [name, str(array.dtype), array.shape, hashlib.sha256(array.tobytes()).hexdigest()]
    elif kind is type(value) and "-packages" not in _file_of(kind):
        slots = [slot for base in kind.__mro__ for slot in getattr(base, "__slots__", ()) if hasattr(value, slot)]
        parts = [getattr(value, "__dict__", None), *(getattr(value, slot) for slot in slots)]
    return [name, *(_told(part, seen) for part in parts)]
