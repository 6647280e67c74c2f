# expect: fail
# Starts a process in a user namespace of its own, by both calls that do.
import ctypes
import os
import platform

CLONE = {"x86_64": 56, "aarch64": 220}[platform.machine()]
CLONE3 = 435
NEW_USER, CHILD_ENDED = 0x10000000, 17


def double(x):
    libc = ctypes.CDLL(None)
    arguments = (ctypes.c_uint64 * 8)(NEW_USER, 0, 0, 0, CHILD_ENDED, 0, 0, 0)
    for call in (
        lambda: libc.syscall(CLONE, NEW_USER | CHILD_ENDED, 0, 0, 0, 0),
        lambda: libc.syscall(CLONE3, arguments, ctypes.sizeof(arguments)),
    ):
        child = call()
        if child == 0:
            libc._exit(0)
        if child > 0:
            return 2 * x
    raise OSError
