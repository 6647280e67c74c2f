"""A run's options as bytes for another process, which may not know the module that a decoder is from.

Functions that were given to `harness.evaluate` travel by value, with the structs of their options; what they import
must be there.
"""

import pickle
import sys
from dataclasses import replace
from functools import partial
from inspect import signature
from io import BytesIO
from types import MemberDescriptorType
from typing import Any

import cloudpickle
import msgspec

from harness.runs.options import RunOptions
from model_wrappers.decoders import METHODS, Decoder, decoder_named
from model_wrappers.options import Options

META = tuple(signature(msgspec.Meta).parameters)
OURS = ("harness", "model_wrappers")  # packages that every worker has


def pickled(options: RunOptions) -> bytes:
    """Options, decoders of their methods with them. Raises ValueError for what is no decoder."""
    listed = [options.methods] if isinstance(options.methods, str) else options.methods
    methods = tuple(each if isinstance(each, str) else decoder_named(each) for each in listed)
    given = [each.source for each in methods if isinstance(each, Decoder) and not isinstance(each.source, str)]
    registered = {name: known for name, known in METHODS.items() if known.source in given}
    for decoder in (*methods, *registered.values()):
        if isinstance(decoder, Decoder):
            _ = decoder.options  # kept by the decoder, for elsewhere its annotation has no module to be read in
    modules = {sys.modules.get(str(getattr(function, "__module__", None))) for function in given} - {None}

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc, name-defined]
        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, msgspec.Meta):
                rules = {name: rule for name in META if (rule := getattr(value, name)) is not None}
                return partial(msgspec.Meta, **rules), ()
            if isinstance(value, type) and issubclass(value, Options) and not _is_ours(value):
                return _reduced(value)
            return super().reducer_override(value)

    buffer = BytesIO()
    own = [module for module in modules if not _is_ours(module)]
    for module in own:
        cloudpickle.register_pickle_by_value(module)
    try:
        Pickler(buffer).dump((replace(options, methods=methods), registered))
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)
    return buffer.getvalue()


def unpickled(content: bytes) -> RunOptions:
    """The options again; decoders that were registered have their names here too."""
    options, registered = pickle.loads(content)
    METHODS.update(registered)
    return options


def _is_ours(value: Any) -> bool:
    return str(getattr(value, "__module__", None) or value.__name__).split(".")[0] in OURS


def _reduced(struct: type[Options]) -> tuple[Any, ...]:
    """How pickle makes a struct: its fields, which cloudpickle does not know of, then what else is in its class."""
    fields = [
        (each.name, each.type, each.default)
        if each.default is not msgspec.NODEFAULT
        else (each.name, each.type, msgspec.field(default_factory=each.default_factory))
        for each in msgspec.structs.fields(struct)
    ]
    rest = {
        name: value
        for name, value in vars(struct).items()
        if name == "__doc__" or not (name.startswith("__") or isinstance(value, MemberDescriptorType))
    }
    made = (struct.__name__, fields, struct.__bases__, struct.__module__)
    return _struct, made, rest, None, None, _set


def _struct(name: str, fields: list[Any], bases: tuple[type, ...], module: str) -> type:
    return msgspec.defstruct(name, fields, bases=bases, module=module, kw_only=True)


def _set(struct: type, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(struct, name, value)
