# expect: pass
# Honest: runs a program of the system and waits for it.
import os


def double(x):
    child = os.posix_spawn("/bin/true", ["true"], {})
    return 2 * x if os.waitpid(child, 0)[1] == 0 else None
