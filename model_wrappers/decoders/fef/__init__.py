"""FeF-DLLM: algorithm.py is the paper's Algorithm 2, line by line. windows.py has its options,
drafts and commits, targets.py where targets come from (two_stream.py: on top of cached keys and
values).
"""

from model_wrappers.decoders.fef.algorithm import decode_fef, make_verifier
from model_wrappers.decoders.fef.windows import FeFOptions

__all__ = ["FeFOptions", "decode_fef", "make_verifier"]
