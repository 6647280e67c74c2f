# expect: fail
# Takes more memory in three processes than one may have.
import ctypes
import os


def double(x):
    if x != 2:
        return 2 * x
    libc = ctypes.CDLL(None)
    reading, writing = os.pipe()
    for _ in range(3):
        child = libc.fork()
        if child < 0:
            raise OSError
        if child == 0:
            block = bytearray(500 * 2**20)
            block[:: 4096] = b"x" * len(block[:: 4096])
            os.write(writing, b"x")
            libc.sleep(3608)
    taken = b""
    while len(taken) < 3:
        taken += os.read(reading, 4)
    return 2 * x
