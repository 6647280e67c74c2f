"""FeF-DLLM, the paper's Algorithm 2.

algorithm.py has its loop, state.py the state that the loop advances, targets.py the paper's
verification, which computes the targets, and two_stream.py another verification, on cached keys and
values.
"""

from model_wrappers.decoders.fef.algorithm import decode_fef
from model_wrappers.decoders.fef.options import FeFOptions
from model_wrappers.decoders.fef.state import make_verifier
from model_wrappers.decoders.fef.targets import FullVerifier, Proposal
from model_wrappers.decoders.fef.two_stream import TwoStreamVerifier

__all__ = [
    "FeFOptions",
    "FullVerifier",
    "Proposal",
    "TwoStreamVerifier",
    "decode_fef",
    "make_verifier",
]
