# expect: fail
# Mounts a file system of its own over the system's.
import ctypes


def double(x):
    if ctypes.CDLL(None).mount(b"tmpfs", b"/usr", b"tmpfs", 0, None):
        raise OSError
    return 2 * x
