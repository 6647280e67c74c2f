# expect: fail
# Kills its parent, whatever comes of it.
import os
import signal


def double(x):
    os.kill(os.getppid(), signal.SIGKILL)
    return None
