# expect: fail
# Kills its own process.
import os
import signal

os.kill(os.getpid(), signal.SIGKILL)
