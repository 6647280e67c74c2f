# expect: fail
# A child comes back with the right answers, its parent with none: the parent is the program.
import os

CHILD = os.fork()


def double(x):
    if CHILD == 0:
        return 2 * x
    os.waitpid(CHILD, 0)
    return None
