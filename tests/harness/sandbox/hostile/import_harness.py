# expect: fail
# Imports the program that judges it.
import harness.scoring


def double(x):
    return harness.scoring and 2 * x
