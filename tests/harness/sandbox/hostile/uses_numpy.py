# expect: pass
# Honest: uses an installed package.
import numpy as np


def double(x):
    return int(np.array([x, x]).sum())
