# expect: pass
# humaneval: fail
# Honest: lets a child compute. (HumanEval's guard removes os.fork.)
import os


def double(x):
    child = os.fork()
    if child == 0:
        os._exit(2 * x & 255)
    status = os.waitpid(child, 0)[1]
    return 2 * x if os.WEXITSTATUS(status) == 2 * x & 255 else None
