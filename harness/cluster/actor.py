"""A worker in a process of its own, which may be on another machine: what Ray's actor runs, and how
options reach it.

Nothing is imported here that takes seconds, so that a new process answers at once and loads
afterwards. Functions that were given to `harness.evaluate` travel by value, with the structs of
their options; what they import must be there.
"""

from __future__ import annotations

import logging
import os
import pickle
import platform
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from inspect import signature
from io import BytesIO
from pathlib import Path
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

import cloudpickle
import msgspec

from harness.errors import UserError
from harness.records.schema import RunConfig
from harness.runs.options import RunOptions
from harness.runs.pool import Chunk, cores
from model_wrappers.decoders import METHODS, Decoder, decoder_named, split_options
from model_wrappers.options import Options

if TYPE_CHECKING:
    from harness.runs.responses import Result
    from harness.runs.worker import Worker


class Actor:
    """Says where it is, loads a run, decodes chunks of it."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def hello(self) -> dict[str, Any]:
        """{host, machine, cores, gpus}: its name, one text for each machine, cores it may use, GPUs
        Ray gave it."""
        boot = Path("/proc/sys/kernel/random/boot_id")
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return {
            "host": platform.node(),
            "machine": f"{platform.node()} {boot.read_text().strip() if boot.exists() else ''}",
            "cores": cores(),
            "gpus": [part for part in visible.split(",") if part],
        }

    def load(
        self, options: bytes, config: RunConfig, pinned: list[int], folder: str, scratch: str
    ) -> tuple[dict[str, Any], dict[str, Sequence[int]], dict[str, Any]]:
        """Load the models and problems of a run; what it was made with, items by suite, and a
        receipt of the machine.

        Args:
            options: the run's, as `pickled` made them; they are resolved here.
            config: what they must come to.
            pinned: the cores of this worker alone.
            folder: in which the command was given, for relative paths.
            scratch: folder for temporary files, used if this machine has it.

        Raises:
            UserError or ValueError: the folder, the files or the models are not the same here.
        """
        if pinned and hasattr(os, "sched_setaffinity"):
            # Before torch starts its threads, which inherit it.
            os.sched_setaffinity(0, pinned)
        try:
            os.chdir(folder)
        except OSError as error:
            raise UserError(
                f"{folder} cannot be entered ({error.strerror}); workers need the files of a run at"
                " the same paths"
            ) from error
        logging.disable(logging.WARNING)  # as the command does
        from harness.records.consistency import differences
        from harness.runs.loading import worker_for
        from harness.runs.resolve import resolve

        run = resolve(unpickled(options))
        changed = differences(config.to_json(), run.config.to_json())
        if changed:
            raise UserError(
                f"the run comes to something else here: {'; '.join(changed)}; give every machine"
                " the same"
            )
        parent = scratch if Path(scratch).is_dir() else None
        self._worker = worker_for(run, Path(tempfile.mkdtemp(prefix="worker-", dir=parent)))
        return self._worker.description, self._worker.items, self._worker.receipt()

    @property
    def worker(self) -> Worker:
        """The worker, which is loaded."""
        assert self._worker is not None, "load comes first"
        return self._worker

    def ask(self, name: str, *arguments: Any) -> Any:
        """What a method of the worker returns: prompts, receipt or warm_up."""
        return getattr(self.worker, name)(*arguments)

    def decode(self, chunk: Chunk) -> Iterator[Result]:
        """As Worker says."""
        yield from self.worker.decode(chunk)


META = tuple(signature(msgspec.Meta).parameters)
OURS = ("harness", "model_wrappers")  # packages that every worker has


def pickled(options: RunOptions) -> bytes:
    """The options of a run as bytes, with the decoders of their methods.

    Raises:
        ValueError: a method is no decoder.
    """
    listed = [options.methods] if isinstance(options.methods, str) else options.methods
    named, values = zip(*map(split_options, listed), strict=True)
    methods = [method if isinstance(method, str) else decoder_named(method) for method in named]
    decoders = [method for method in methods if isinstance(method, Decoder)]
    functions = [decoder.source for decoder in decoders if not isinstance(decoder.source, str)]
    registered = {name: known for name, known in METHODS.items() if known.source in functions}
    for decoder in (*decoders, *registered.values()):
        # Read now, and kept by the decoder: elsewhere its annotation has no module to be read in.
        _ = decoder.options
    content = replace(options, methods=tuple(zip(methods, values, strict=True))), registered
    buffer = BytesIO()
    with _by_value(functions):
        _Pickler(buffer).dump(content)
    return buffer.getvalue()


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc, name-defined]
    """Pickles structs of options from outside with their fields and rules."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, msgspec.Meta):
            rules = {name: getattr(value, name) for name in META}
            return partial(msgspec.Meta, **rules), ()
        if isinstance(value, type) and issubclass(value, Options) and not _is_ours(value):
            return _reduced(value)
        return super().reducer_override(value)


@contextmanager
def _by_value(functions: Iterable[Any]) -> Iterator[None]:
    """Let the modules of functions be pickled with their code, where other machines lack them."""
    names = {str(getattr(function, "__module__", None)) for function in functions}
    modules = [sys.modules[name] for name in names & sys.modules.keys()]
    others = [module for module in modules if not _is_ours(module)]
    for module in others:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in others:
            cloudpickle.unregister_pickle_by_value(module)


def unpickled(content: bytes) -> RunOptions:
    """The options again; decoders that were registered have their names here too."""
    options, registered = pickle.loads(content)
    METHODS.update(registered)
    return options


def _is_ours(value: Any) -> bool:
    return str(getattr(value, "__module__", None) or value.__name__).split(".")[0] in OURS


def _reduced(struct: type[Options]) -> tuple[Any, ...]:
    """How pickle makes a struct: its fields, which cloudpickle does not know of, then what else is
    in its class."""
    fields = [
        (field.name, field.type, _defaults(field)) for field in msgspec.structs.fields(struct)
    ]
    rest = {
        name: value
        for name, value in vars(struct).items()
        if name == "__doc__"
        or not (name.startswith("__") or isinstance(value, MemberDescriptorType))
    }
    made = (struct.__name__, fields, struct.__bases__, struct.__module__)
    return _struct, made, rest, None, None, _set


def _defaults(field: msgspec.structs.FieldInfo) -> dict[str, Any]:
    return {"default": field.default, "default_factory": field.default_factory}


def _struct(name: str, fields: list[Any], bases: tuple[type, ...], module: str) -> type:
    defined = [(field, kind, msgspec.field(**defaults)) for field, kind, defaults in fields]
    return msgspec.defstruct(name, defined, bases=bases, module=module, kw_only=True)


def _set(struct: type, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(struct, name, value)
