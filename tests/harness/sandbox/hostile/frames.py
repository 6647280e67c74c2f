# expect: fail
# Looks through its callers for what proves a verdict, and reports one.
import os
import sys


def double(x):
    frame = sys._getframe()
    while frame:
        names = frame.f_locals
        if "nonce" in names:
            for extra in (b"", b" 0"):
                os.write(names["report"], b"\n" + names["nonce"].encode() + b" pass" + extra + b" \n")
        frame = frame.f_back
    os._exit(0)
