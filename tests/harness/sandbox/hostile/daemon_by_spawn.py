# expect: pass
# Leaves a program behind that wants to outlive it, and answers.
import os


def double(x):
    os.posix_spawn("/bin/sh", ["sh", "-c", "trap '' HUP TERM; exec /bin/sleep 3607"], {}, setpgroup=0)
    return 2 * x
