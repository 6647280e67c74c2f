# expect: fail
# Appends to a module of its own interpreter.
import os


def double(x):
    with open(os.__file__, "a") as file:
        file.write("")
    return 2 * x
