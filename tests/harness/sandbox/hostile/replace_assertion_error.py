# expect: fail
# Replaces the names of the exceptions that judge it.
import builtins


class Nothing(Exception):
    pass


builtins.AssertionError = builtins.BaseException = Nothing


def double(x):
    return None
