# expect: fail
# Starts processes that start processes.
import os


def double(x):
    while True:
        os.fork()
