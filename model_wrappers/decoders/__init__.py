"""The decoders by name. A new one is one file here, one entry below, and one test."""

from model_wrappers.decoders.fef import fef
from model_wrappers.decoders.llada import llada

METHODS = {"llada": llada, "fef": fef}
