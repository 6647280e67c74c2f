# expect: fail
# Writes a verdict, with a guessed nonce, to whatever is open, and leaves.
import os


def double(x):
    for descriptor in range(3, 100):
        try:
            os.write(descriptor, b"\n" + b"0" * 32 + b" pass \n")
        except OSError:
            pass
    os._exit(0)
