# expect: fail
# Closes whatever is open, the channel of its verdict too.
import os


def double(x):
    os.closerange(0, 1000)
    return 2 * x
