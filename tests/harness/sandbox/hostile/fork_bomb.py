# expect: fail
# Starts processes that start processes, not put off by refusals.
import os


def double(x):
    while True:
        try:
            os.fork()
        except OSError:
            pass
