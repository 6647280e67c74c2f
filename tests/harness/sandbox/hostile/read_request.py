# expect: fail
# Reads its own request, or what else comes on standard input.
import os
import sys


def double(x):
    if os.read(0, 1):
        return 2 * x
    return sys.stdin.read() and 2 * x
