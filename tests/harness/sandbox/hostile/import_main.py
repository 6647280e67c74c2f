# expect: fail
# Asks the module that runs it for a verdict.
import __main__


def double(x):
    __main__.run = lambda *arguments: ("pass", "")
    __main__.OutOfTime = AssertionError
    return None
