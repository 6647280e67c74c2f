"""What the paper's Theorem 2 and its corollary expect of speculative windows, from a rate of acceptance and two costs.

Theorem 2 assumes that the drafts of a window are accepted independently, each with probability alpha. The corollary is
relative to "a prefix-conditioned sequential target baseline that commits one position per target pass", and takes that
pass to cost what the verification of a whole window costs.
"""

from __future__ import annotations

import math


def expected_committed(alpha: float, k: int) -> float:
    """E[C_k] = (1 - alpha^k) / (1 - alpha), k at alpha = 1: positions that a window of k drafts commits.

    C_k counts the accepted drafts and, after a rejection, the corrected token; a window accepted whole commits its k
    drafts and nothing more. alpha: probability that a draft which is tested is accepted. Source: Theorem 2, computed
    as its sum over l < k of alpha^l, which is exact near alpha = 1 too. Raises ValueError if alpha is not in [0, 1] or
    k < 1.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha={alpha} must lie in [0, 1]: the share of tested drafts that is accepted")
    if k < 1:
        raise ValueError(f"k={k} must be at least 1: the drafts of a window")
    return math.fsum(alpha**position for position in range(k))


def acceleration_ratio(committed: float, c_rho: float, c_pi: float) -> float:
    """S = E[C_k] c_pi / (c_rho + c_pi): speedup over decoding one position per target pass (the rows w/o SD).

    committed: E[C_k], positions a window commits. c_rho: seconds of one draft pass. c_pi: seconds of one verification
    pass (k inputs), and also, as the corollary has it, of one pass of the baseline (one input). Where a pass of the
    baseline costs c instead, its speedup is S c / c_pi. Relative to LLaDA, divide by the number of passes over the
    response: 1, 1.5 and 2.5 for 1, 2 and 4 diffusion steps that re-mask half. Source: Corollary "Idealized
    acceleration ratio". Raises ValueError if committed < 1 or a cost is not positive and finite.
    """
    if not 1 <= committed < math.inf:
        raise ValueError(f"committed={committed} must be at least 1: every window commits a position")
    for name, cost in (("c_rho", c_rho), ("c_pi", c_pi)):
        if not 0 < cost < math.inf:
            raise ValueError(f"{name}={cost} must be positive: the seconds of one pass")
    return committed * c_pi / (c_rho + c_pi)
