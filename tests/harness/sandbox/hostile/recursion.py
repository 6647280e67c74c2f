# expect: fail
# Calls itself without end.
import sys

sys.setrecursionlimit(10**9)


def double(x):
    return double(x) + 1
