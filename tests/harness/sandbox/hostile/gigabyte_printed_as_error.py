# expect: fail
# Prints a gigabyte to the stream of errors.
import sys


def double(x):
    for _ in range(1024):
        sys.stderr.write("x" * 2**20)
    return 2 * x
