# expect: fail
# Writes a gigabyte and a half into files that exist in memory only.
import ctypes
import os


def double(x):
    for _ in range(100 if x == 2 else 0):
        file = ctypes.CDLL(None).memfd_create(b"memory", 0)
        if os.write(file, bytes(15 * 2**20)) != 15 * 2**20:
            raise OSError
    return 2 * x
