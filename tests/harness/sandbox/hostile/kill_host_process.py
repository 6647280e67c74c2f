# expect: fail
# Kills the process that started it all.
import os
import signal


def double(x):
    os.kill(int("@PID@"), signal.SIGKILL)
    return None
