"""The decoders by name. A new one is one file here, one entry in METHODS, and one test.

Light: a decoder's file, and with it torch, is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_type_hints

from model_wrappers.options import Options

if TYPE_CHECKING:
    from model_wrappers.request import Request


@dataclass(frozen=True)
class Decoder:
    """A method: where it is, and what it can do.

    source: "module:function"; the function takes a Request and its options, whose struct its annotation names, and
    fills the response. semi_autoregressive: it takes LLaDA's block lengths of a suite; else it decodes the full
    sequence. greedy_only: it is defined at temperature 0. needs_extend: it runs only on backbones with `extend`.
    prefix_conditioned: its target is what the paper's Algorithm 1 trains, and its windows are those of the paper's
    Theorem 2.
    """

    source: str
    semi_autoregressive: bool = True
    greedy_only: bool = False
    needs_extend: bool = False
    prefix_conditioned: bool = False

    @cached_property
    def function(self) -> Callable[[Request, Any], None]:
        """The decoder itself."""
        module, _, name = self.source.partition(":")
        found: Callable[[Request, Any], None] = getattr(import_module(module), name)
        return found

    @cached_property
    def options(self) -> type[Options]:
        """The struct of its options."""
        kind: type[Options] = get_type_hints(self.function)["options"]
        return kind

    def takes(self, option: str) -> bool:
        """Whether it has an option of this name."""
        return option in self.options.__struct_fields__

    def __call__(self, request: Request, options: Options) -> None:
        """Fill the response of a request."""
        self.function(request, options)


METHODS: dict[str, Decoder] = {
    "llada": Decoder("model_wrappers.decoders.llada:decode_llada"),
    "ssd": Decoder("model_wrappers.decoders.ssd:decode_ssd", greedy_only=True),
    "ddosp": Decoder("model_wrappers.decoders.ddosp:decode_ddosp"),
    "dcd": Decoder("model_wrappers.decoders.dcd:decode_dcd"),
    "fef": Decoder("model_wrappers.decoders.fef:decode_fef", semi_autoregressive=False, prefix_conditioned=True),
    "threshold": Decoder("model_wrappers.decoders.confidence:decode_threshold"),
    "factor": Decoder("model_wrappers.decoders.confidence:decode_factor"),
    "entropy": Decoder("model_wrappers.decoders.confidence:decode_entropy"),
    "klass": Decoder("model_wrappers.decoders.klass:decode_klass"),
    "wino": Decoder("model_wrappers.decoders.wino:decode_wino", needs_extend=True),
    "freedave": Decoder("model_wrappers.decoders.freedave:decode_freedave", greedy_only=True),
    "pc_sampler": Decoder("model_wrappers.decoders.pc_sampler:decode_pc_sampler"),
}


def decoder_named(method: str) -> Decoder:
    """The decoder of a name. Raises ValueError naming the valid ones."""
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; valid: {', '.join(METHODS)}")
    return METHODS[method]
