# expect: fail
# Writes a gigabyte to whatever is open, the channel of its verdict too.
import os


def double(x):
    for _ in range(2**14):
        for descriptor in range(3, 100):
            try:
                os.write(descriptor, bytes(2**16))
            except OSError:
                pass
    return 2 * x
