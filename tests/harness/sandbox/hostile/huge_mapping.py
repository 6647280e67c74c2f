# expect: fail
# 10 GB of memory that no Python object owns.
import mmap


def double(x):
    mapping = mmap.mmap(-1, 10 * 2**30)
    return len(mapping) and 2 * x
