# expect: fail
# Attaches to its parent as a debugger does.
import ctypes
import os

ATTACH = 16


def double(x):
    if ctypes.CDLL(None).ptrace(ATTACH, os.getppid(), 0, 0):
        raise OSError
    return None
