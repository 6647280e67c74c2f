"""FeF-DLLM, a room of its own.

algorithm.py is the paper's Algorithm 2, line by line. options.py has its options, drafts.py where drafts come from,
targets.py where targets come from (two_stream.py: on top of cached keys and values), commits.py what a window leaves.
"""

from model_wrappers.decoders.fef.algorithm import decode_fef, make_verifier
from model_wrappers.decoders.fef.options import FeFOptions

__all__ = ["FeFOptions", "decode_fef", "make_verifier"]
