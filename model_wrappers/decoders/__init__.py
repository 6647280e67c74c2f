"""The decoders by name. A new one is one file here, one entry below, and one test."""

from collections.abc import Callable

from model_wrappers.decoders.confidence import entropy, factor, threshold
from model_wrappers.decoders.dcd import dcd
from model_wrappers.decoders.ddosp import ddosp
from model_wrappers.decoders.fef import fef
from model_wrappers.decoders.llada import llada
from model_wrappers.decoders.ssd import ssd
from model_wrappers.trace import Window

METHODS: dict[str, Callable[..., list[Window]]] = {
    "llada": llada,
    "ssd": ssd,
    "ddosp": ddosp,
    "dcd": dcd,
    "fef": fef,
    "threshold": threshold,
    "factor": factor,
    "entropy": entropy,
}
