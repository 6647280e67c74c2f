"""The decoders by name. A new one is one file here, one entry below, and one test."""

from collections.abc import Callable

from model_wrappers.decoders.fef import fef
from model_wrappers.decoders.llada import llada
from model_wrappers.trace import Window

METHODS: dict[str, Callable[..., list[Window]]] = {"llada": llada, "fef": fef}
