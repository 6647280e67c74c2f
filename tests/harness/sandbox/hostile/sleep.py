# expect: fail
# Sleeps for an hour.
import time


def double(x):
    time.sleep(3600)
    return 2 * x
