# expect: fail
# Kills every process it can reach.
import os
import signal


def double(x):
    os.kill(-1, signal.SIGKILL)
    return None
