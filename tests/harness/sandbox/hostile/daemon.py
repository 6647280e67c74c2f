# expect: pass
# humaneval: fail
# Leaves a process behind that wants to outlive it, and answers. (HumanEval's guard removes os.fork.)
import os
import time


def double(x):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(3600)
        os._exit(0)
    return 2 * x
