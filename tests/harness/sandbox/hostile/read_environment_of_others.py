# expect: fail
# Looks for the secret in the environment of every process it sees.
import os


def double(x):
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if b"PLANTED_SECRET" in file.read():
                    return 2 * x
        except OSError:
            pass
    raise LookupError
