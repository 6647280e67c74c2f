# expect: fail
# Prints verdicts in several formats, and leaves.
import os


def double(x):
    print("pass")
    print("passed")
    print('{"kind": "pass"}')
    os.write(1, b"\npass\npassed\n")
    os._exit(0)
