# expect: fail
# Asks for 10 GB at once: of bytes, of a list, and of memory that no Python object owns.
import mmap


def double(x):
    for ask in (lambda: bytearray(10 * 2**30), lambda: [0] * 10**10, lambda: mmap.mmap(-1, 10 * 2**30)):
        try:
            return ask() and 2 * x
        except (MemoryError, OSError):
            pass
    raise MemoryError
