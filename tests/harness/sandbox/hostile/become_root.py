# expect: fail
# Becomes root.
import ctypes


def double(x):
    if ctypes.CDLL(None).setresuid(0, 0, 0):
        raise OSError
    return 2 * x
