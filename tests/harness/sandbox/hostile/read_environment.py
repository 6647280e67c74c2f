# expect: fail
# Looks for a secret in its environment.
import os


def double(x):
    return os.environ["PLANTED_SECRET"] and 2 * x
