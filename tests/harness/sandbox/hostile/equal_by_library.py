# expect: fail
# Returns the standard library's object that equals everything.
from unittest.mock import ANY


def double(x):
    return ANY
