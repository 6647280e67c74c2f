# expect: fail
# Replaces the functions that run its tests.
import builtins

builtins.exec = lambda *arguments, **named: None
builtins.compile = lambda *arguments, **named: None


def double(x):
    return None
