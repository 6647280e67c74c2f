"""The decoders by name.

A new decoder of this package is a file here, an entry in METHODS and a test. Outside this package
it is a function with `@register("name")`. Importing this module does not import torch: a decoder's
file is imported when the decoder is first used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from model_wrappers.decoders.files import import_file
from model_wrappers.decoders.signature import Signature, function_of, name_of_function, signature_of
from model_wrappers.options import Options, meant

if TYPE_CHECKING:
    from model_wrappers.request import Request

Function = Callable[..., None]  # of a Request and its options
F = TypeVar("F", bound=Function)
# Without the characters that separate methods or options on a command line: , + ( ) = and spaces.
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
# Names that `decode` and a command line use for arguments of their own. A registered decoder may
# have no option of such a name: it could not be given.
RESERVED_NAMES = {
    "backbone",
    "prompt_ids",
    "method",
    "gen_length",
    "block_length",
    "temperature",
    "seed",
    "sampler",
    "given",
    "observer",
    "draft",
    "role",
}


@dataclass(frozen=True)
class Decoder:
    """A decoding method: its function, and what it can decode.

    Attributes:
        source: "module:function", or the function itself. The function takes a Request and options
            (`signature.signature_of`) and fills the response.
        name: the name in METHODS and in messages.
        semi_autoregressive: it uses the block length that a suite sets for LLaDA; a decoder
            without this trait decodes the response as one block.
        greedy_only: it is defined at temperature 0 only.
        needs_extend: it runs only on backbones with `extend`.
        prefix_conditioned: its target is the one that the paper's Algorithm 1 trains, and Theorem 2
            describes its windows.
        may_leave_masks: it may choose the mask as a token, which then stays in the response, as in
            the official sampler.
        whole_sequence: it reads positions after the block, or needs its own attention mask, and so
            cannot decode a block model.
        blocks_only: it decodes only block models.
        canvases: it decodes models without a mask token.
        causal: it decodes only autoregressive models.
        label: name of its row in a table; "" stands for `name`.
    """

    source: str | Function
    name: str
    semi_autoregressive: bool = True
    greedy_only: bool = False
    needs_extend: bool = False
    prefix_conditioned: bool = False
    may_leave_masks: bool = False
    whole_sequence: bool = False
    blocks_only: bool = False
    canvases: bool = False
    causal: bool = False
    label: str = ""

    @cached_property
    def function(self) -> Function:
        """The decoder's function, imported at the first use."""
        if not isinstance(self.source, str):
            return self.source
        module, _, name = self.source.partition(":")
        return getattr(import_module(module), name)

    @cached_property
    def signature(self) -> Signature:
        """How the function takes its options.

        Raises:
            ValueError: the function is no decoder.
        """
        return signature_of(self.function)

    @property
    def options(self) -> type[Options]:
        """The struct type of the decoder's options.

        Raises:
            ValueError: the function is no decoder.
        """
        return self.signature.options

    def takes(self, option: str) -> bool:
        """Whether the decoder has an option of this name."""
        return option in self.options.__struct_fields__

    def __call__(self, request: Request, options: Options) -> None:
        """Fill the response of a request."""
        positional, named = self.signature.arguments(options)
        self.function(request, *positional, **named)


def _built_in(name: str, file: str | None = None, **traits: Any) -> Decoder:
    """A decoder of this package, `decode_NAME` in the file NAME.py or in `file`.py; traits are
    fields of Decoder."""
    return Decoder(f"model_wrappers.decoders.{file or name}:decode_{name}", name, **traits)


METHODS: dict[str, Decoder] = {
    "llada": _built_in("llada", may_leave_masks=True),
    "ssd": _built_in("ssd", greedy_only=True, may_leave_masks=True, whole_sequence=True),
    "ddosp": _built_in("ddosp", may_leave_masks=True),
    "dcd": _built_in("dcd", may_leave_masks=True, whole_sequence=True),
    "fef": _built_in("fef", semi_autoregressive=False, prefix_conditioned=True, label="FeF-DLLM"),
    "threshold": _built_in("threshold", "confidence", may_leave_masks=True),
    "factor": _built_in("factor", "confidence", may_leave_masks=True),
    "entropy": _built_in("entropy", "confidence", may_leave_masks=True),
    "block": _built_in("block", may_leave_masks=True),
    "s2d2": _built_in(
        "s2d2", needs_extend=True, may_leave_masks=True, blocks_only=True, label="S2D2"
    ),
    "ar": _built_in(
        "ar", semi_autoregressive=False, needs_extend=True, causal=True, label="Autoregressive"
    ),
    "renoise": _built_in("renoise", greedy_only=True, canvases=True),
    "klass": _built_in("klass", may_leave_masks=True, label="KLASS"),
    "wino": _built_in(
        "wino", needs_extend=True, may_leave_masks=True, whole_sequence=True, label="WINO"
    ),
    "flash": _built_in(
        "flash",
        semi_autoregressive=False,
        needs_extend=True,
        may_leave_masks=True,
        whole_sequence=True,
        label="Flash-dLLM",
    ),
    "freedave": _built_in("freedave", greedy_only=True, may_leave_masks=True, label="FreeDave"),
    "pc_sampler": _built_in("pc_sampler", may_leave_masks=True, label="PC-Sampler"),
    "dream": _built_in("dream", semi_autoregressive=False, may_leave_masks=True, label="Dream"),
    "prophet": _built_in("prophet", may_leave_masks=True, whole_sequence=True, label="Prophet"),
}
PLUGIN_PRESETS: dict[str, Any] = {}  # harness.methods.presets.Preset, by name
Method = str | Decoder | Function  # a name in METHODS, or what could have one
WithOptions = tuple[Method, Mapping[str, Any]]


def register(name: str, **traits: Any) -> Callable[[F], F]:
    """A decorator that registers a function as a decoder.

    The function fills the response of a `request.Request`. Its options are a struct derived from
    `options.Options`, a dataclass, or parameters with defaults.

    Args:
        name: the decoder's name.
        traits: fields of Decoder.

    Raises:
        ValueError: the name is taken or cannot be written on a command line, or the function is no
            decoder.
    """

    def decorate(function: F) -> F:
        add_decoder(name, Decoder(function, name, **traits))
        return function

    # Checked here too: `@register` without a name passes the function as the name.
    check_name(name)
    return decorate


def add_decoder(name: str, decoder: Decoder) -> None:
    """Add a decoder to METHODS.

    A function replaces an earlier one of the same module and name, so that a module can be imported
    again. In a notebook it replaces any function that was registered in the notebook.

    Raises:
        ValueError: the name is taken, the label is bad, or the function is no decoder.
    """
    check_name(name)
    existing = METHODS.get(name)
    if existing is not None:
        # By module and name: a cell or module that runs again makes another function object.
        identities = {_identity(existing.source), _identity(decoder.source)}
        if len(identities) > 1 and any(module != "__main__" for module, _ in identities):
            raise ValueError(f"a decoder {name!r} is there already; choose another name")
    check_label(decoder.label)
    # Reading the options here makes a bad annotation raise now, not at the first call.
    reserved = [option for option in decoder.options.__struct_fields__ if option in RESERVED_NAMES]
    if reserved:
        raise ValueError(
            f"{name}: decode itself takes {', '.join(reserved)}; give the decoder's option another"
            " name"
        )
    METHODS[name] = replace(decoder, name=name)


def check_name(name: str) -> None:
    """Check that a decoder's name can be written on a command line.

    Raises:
        ValueError: it cannot be.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(
            f"a decoder's name is letters, digits, '_', '-', '.' and '/', not {name!r}; write"
            " @register(name)"
        )


def check_label(label: str | None) -> None:
    """Check that a table's row can have this label; "" stands for the name.

    Raises:
        ValueError: it cannot have it.
    """
    if not isinstance(label, str) or (label and not (label[0].isalnum() and label.isprintable())):
        raise ValueError(f"a label is one line that begins with a letter or a digit, not {label!r}")


def decoder_named(method: Method) -> Decoder:
    """The decoder that a name, "FILE.py:name", a function or a Decoder stands for.

    Names that METHODS does not have are looked for in the entry points of installed packages.

    Raises:
        ValueError: the name is unknown; the message suggests names like it.
    """
    if isinstance(method, Decoder):
        return method
    if callable(method):
        registered = (decoder for decoder in METHODS.values() if decoder.source is method)
        return next(registered, Decoder(method, name_of_function(method)))
    if not isinstance(method, str):
        raise ValueError(
            f"{method!r} is no method: give a function of (request, options), or of"
            f" {', '.join(METHODS)}"
        )
    if method not in METHODS:
        _import_method(method)
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}{meant(method, METHODS, whole=True)}")
    return METHODS[method]


def decoder_and_settings(method: Method) -> tuple[Decoder, dict[str, Any]]:
    """The decoder of a method or of a plugin's preset, and the preset's settings.

    Args:
        method: a name, "FILE.py:name", a Decoder or a function. The name may be that of a preset
            that a file or an installed package registers.

    Returns:
        The decoder, and the preset's options and lengths ({} without a preset).

    Raises:
        ValueError: the method is unknown, or the preset depends on the suites of a run.
    """
    if not isinstance(method, str):
        return decoder_named(method), {}
    # A preset comes before a decoder of its name, as in runs.
    if method not in METHODS and method not in PLUGIN_PRESETS:
        _import_method(method)
    if method not in PLUGIN_PRESETS:
        return decoder_named(method), {}
    preset = PLUGIN_PRESETS[method]
    if preset.tokens_per_step or preset.draft_role or preset.suites:
        raise ValueError(
            f"the preset {method} has tokens_per_step, draft_role or suites, which only runs of "
            f"fef-dllm know; give method={preset.method!r} with its options"
        )
    return decoder_named(preset.method), {**preset.options, **preset.lengths}


def _import_method(method: str) -> None:
    """Register what "FILE.py:name" names, under that whole text, or load all entry points."""
    file, _, name = method.rpartition(":")
    if not file.endswith(".py"):
        # Which package registers a name is known only after it is imported, so all are.
        for entry in entry_points(group="fef_dllm_harness"):
            entry.load()
        return
    module = import_file(Path(file).expanduser())
    if name in PLUGIN_PRESETS:
        PLUGIN_PRESETS[method] = PLUGIN_PRESETS[name]
        return
    source = METHODS.get(name)
    # A built-in decoder of this name (its source is a text) is not the file's: take the function.
    if source is None or isinstance(source.source, str):
        source = getattr(module, name, None)
    if source is None:
        raise ValueError(f"{file} has no method {name!r}; name its function, or what it registers")
    METHODS[method] = replace(decoder_named(source), name=method)


def split_options(method: Method | WithOptions) -> tuple[Method, dict[str, Any]]:
    """Split a method, or a pair (method, options), into both.

    Raises:
        ValueError: a tuple that is no pair (method, options).
    """
    if not isinstance(method, tuple):
        return method, {}
    if len(method) != 2 or not isinstance(method[1], Mapping):
        raise ValueError(f"{method!r} is no method: give (function, {{option: value}})")
    return method[0], dict(method[1])


def file_of(function: Function) -> str:
    """The file that a function was defined in; "" if it has none, as a built-in function."""
    inner = function_of(function)
    if not hasattr(inner, "__code__"):  # a callable object: its class has the code
        inner = vars(type(inner)).get("__call__")
    code = getattr(inner, "__code__", None)
    return "" if code is None else str(code.co_filename)


def _identity(source: str | Function) -> tuple[Any, Any]:
    """Module and qualified name of a function; the object itself in place of one it lacks."""
    return getattr(source, "__module__", source), getattr(source, "__qualname__", source)
