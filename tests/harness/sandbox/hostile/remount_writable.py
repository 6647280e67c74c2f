# expect: fail
# Becomes root of namespaces of its own, and makes the system's folders writable there.
import ctypes
import os

NEW_USER, NEW_MOUNTS, REMOUNT, BIND = 0x10000000, 0x20000, 32, 4096


def double(x):
    libc = ctypes.CDLL(None)
    libc.unshare(NEW_USER | NEW_MOUNTS)
    libc.mount(None, b"/usr", None, REMOUNT | BIND, None)
    with open("/usr/new.txt", "w") as file:
        file.write("new")
    return 2 * x
