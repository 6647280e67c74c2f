# expect: fail
# The same, not put off by refusals.
import os


def double(x):
    while True:
        try:
            os.fork()
        except OSError:
            pass
