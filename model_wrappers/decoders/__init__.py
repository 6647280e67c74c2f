"""The decoders by name. A new one is one file here, one entry in METHODS, and one test; elsewhere
it is a function with `@register("name")`. Light: a decoder's file, and with it torch, is imported
when the decoder is used.
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
# no sign that separates methods or options on a command line
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
# What `decode` and a command line take themselves: no option of a registered decoder has such a
# name.
TAKEN = {
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
    """A method: where it is, and what it can do.

    Attributes:
        source: "module:function", or the function, which takes a Request and its options
            (`signature.signature_of`) and fills the response.
        name: as in messages.
        semi_autoregressive: it takes LLaDA's block lengths of a suite; else it decodes the full
            sequence.
        greedy_only: it is defined at temperature 0.
        needs_extend: it runs only on backbones with `extend`.
        prefix_conditioned: its target is what the paper's Algorithm 1 trains, and its windows are
            those of Theorem 2.
        may_leave_masks: its choice of a token may be the mask, which then stays, as with the
            official sampler.
        whole_sequence: it reads what comes after the block, or attends otherwise, and cannot decode
            a block model.
        blocks_only: it decodes block models and no others.
        canvases: it decodes models without a mask.
        causal: it decodes autoregressive models, and no others.
        label: its row in a table; "" is its name.
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
    def function(self) -> Callable[[Request, Any], None]:
        """The decoder itself."""
        if not isinstance(self.source, str):
            return self.source
        module, _, name = self.source.partition(":")
        return getattr(import_module(module), name)

    @cached_property
    def signature(self) -> Signature:
        """How the function takes its options.

        Raises:
            ValueError: a function that is no decoder.
        """
        return signature_of(self.function)

    @property
    def options(self) -> type[Options]:
        """The struct of its options.

        Raises:
            ValueError: a function that is no decoder.
        """
        return self.signature.options

    def takes(self, option: str) -> bool:
        """Whether it has an option of this name."""
        return option in self.options.__struct_fields__

    def __call__(self, request: Request, options: Options) -> None:
        """Fill the response of a request."""
        positional, named = self.signature.arguments(options)
        self.function(request, *positional, **named)


def _here(name: str, file: str | None = None, **traits: Any) -> Decoder:
    """A decoder of this package: `decode_NAME` of the file of its name, or of another one. traits:
    Decoder's."""
    return Decoder(f"model_wrappers.decoders.{file or name}:decode_{name}", name, **traits)


METHODS: dict[str, Decoder] = {
    "llada": _here("llada", may_leave_masks=True),
    "ssd": _here("ssd", greedy_only=True, may_leave_masks=True, whole_sequence=True),
    "ddosp": _here("ddosp", may_leave_masks=True),
    "dcd": _here("dcd", may_leave_masks=True, whole_sequence=True),
    "fef": _here("fef", semi_autoregressive=False, prefix_conditioned=True, label="FeF-DLLM"),
    "threshold": _here("threshold", "confidence", may_leave_masks=True),
    "factor": _here("factor", "confidence", may_leave_masks=True),
    "entropy": _here("entropy", "confidence", may_leave_masks=True),
    "block": _here("block", may_leave_masks=True),
    "s2d2": _here("s2d2", needs_extend=True, may_leave_masks=True, blocks_only=True, label="S2D2"),
    "ar": _here(
        "ar", semi_autoregressive=False, needs_extend=True, causal=True, label="Autoregressive"
    ),
    "renoise": _here("renoise", greedy_only=True, canvases=True),
    "klass": _here("klass", may_leave_masks=True, label="KLASS"),
    "wino": _here(
        "wino", needs_extend=True, may_leave_masks=True, whole_sequence=True, label="WINO"
    ),
    "flash": _here(
        "flash",
        semi_autoregressive=False,
        needs_extend=True,
        may_leave_masks=True,
        whole_sequence=True,
        label="Flash-dLLM",
    ),
    "freedave": _here("freedave", greedy_only=True, may_leave_masks=True, label="FreeDave"),
    "pc_sampler": _here("pc_sampler", may_leave_masks=True, label="PC-Sampler"),
    "dream": _here("dream", semi_autoregressive=False, may_leave_masks=True, label="Dream"),
    "prophet": _here("prophet", may_leave_masks=True, whole_sequence=True, label="Prophet"),
}
PLUGIN_PRESETS: dict[str, Any] = {}  # harness.methods.presets.Preset, by name
Method = str | Decoder | Function  # a name in METHODS, or what could have one
WithOptions = tuple[Method, Mapping[str, Any]]


def register(name: str, **traits: Any) -> Callable[[F], F]:
    """A decorator that makes a function a decoder.

    The function fills the response of a request.Request; its options are a struct derived from
    options.Options, a dataclass, or parameters with defaults.

    Args:
        name: of the decoder.
        traits: fields of Decoder.

    Raises:
        ValueError: a name that is taken or unfit for a command line, and no function.
    """

    def enter(function: F) -> F:
        add_decoder(name, Decoder(function, name, **traits))
        return function

    check_name(name)
    return enter


def add_decoder(name: str, decoder: Decoder) -> None:
    """Enter a decoder in METHODS.

    A function replaces an earlier one of its module and name, as when a module is imported again,
    and in a notebook any one that was registered there.

    Raises:
        ValueError: a name that is taken, a bad label, or what is no decoder.
    """
    check_name(name)
    known = METHODS.get(name)
    if known is not None:
        identities = {_identity(known.source), _identity(decoder.source)}
        if len(identities) > 1 and any(module != "__main__" for module, _ in identities):
            raise ValueError(f"a decoder {name!r} is there already; choose another name")
    check_label(decoder.label)
    # A bad annotation raises here, not at the first call.
    taken = [option for option in decoder.options.__struct_fields__ if option in TAKEN]
    if taken:
        raise ValueError(
            f"{name}: decode itself takes {', '.join(taken)}; give the decoder's option another"
            " name"
        )
    METHODS[name] = replace(decoder, name=name)


def check_name(name: str) -> None:
    """Check that a name can be written on a command line.

    Raises:
        ValueError: it cannot.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(
            f"a decoder's name is letters, digits, '_', '-', '.' and '/', not {name!r}; write"
            " @register(name)"
        )


def check_label(label: str | None) -> None:
    """Check that a row of a table can have a label; "" stands for the name.

    Raises:
        ValueError: it cannot.
    """
    if not isinstance(label, str) or (label and not (label[0].isalnum() and label.isprintable())):
        raise ValueError(f"a label is one line that begins with a letter or a digit, not {label!r}")


def decoder_named(method: Method) -> Decoder:
    """The decoder of a name, of "FILE.py:name", of an installed package's entry points, or of a
    function.

    Raises:
        ValueError: an unknown name, with the valid ones.
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
    """A method as `decoder_named` takes it, or a preset that a file or a package registers.

    Args:
        method: a name, "FILE.py:name", a decoder or a function.

    Returns:
        The decoder, and the preset's options and lengths.

    Raises:
        ValueError: an unknown method, or a preset that depends on the suites of a run.
    """
    if not isinstance(method, str):
        return decoder_named(method), {}
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
    """Enter what a "FILE.py:name" stands for under that text, or what entry points register."""
    file, _, name = method.rpartition(":")
    if not file.endswith(".py"):
        for entry in entry_points(group="fef_dllm_harness"):
            entry.load()
        return
    module = import_file(Path(file).expanduser())
    if name in PLUGIN_PRESETS:
        PLUGIN_PRESETS[method] = PLUGIN_PRESETS[name]
        return
    source = METHODS.get(name)
    if source is None or isinstance(source.source, str):  # no file brings a decoder of this package
        source = getattr(module, name, None)
    if source is None:
        raise ValueError(f"{file} has no method {name!r}; name its function, or what it registers")
    METHODS[method] = replace(decoder_named(source), name=method)


def split_options(method: Method | WithOptions) -> tuple[Method, dict[str, Any]]:
    """A method and the options that it comes with.

    Raises:
        ValueError: a pair that is no (method, options).
    """
    if not isinstance(method, tuple):
        return method, {}
    if len(method) != 2 or not isinstance(method[1], Mapping):
        raise ValueError(f"{method!r} is no method: give (function, {{option: value}})")
    return method[0], dict(method[1])


def name_of(method: Method) -> str:
    """What messages call a method."""
    return method if isinstance(method, str) else decoder_named(method).name


def file_of(function: Function) -> str:
    """The file that a function was defined in; "" for what has none."""
    inner = function_of(function)
    if not hasattr(inner, "__code__"):  # an object that can be called
        inner = vars(type(inner)).get("__call__")
    code = getattr(inner, "__code__", None)
    return "" if code is None else str(code.co_filename)


def _identity(source: str | Function) -> tuple[Any, Any]:
    """Module and name of a function; of what has none, the object itself."""
    return getattr(source, "__module__", source), getattr(source, "__qualname__", source)
