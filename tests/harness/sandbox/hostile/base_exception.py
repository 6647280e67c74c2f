# expect: fail
# Raises an exception that `except Exception` does not catch, whose text cannot be made.
class Odd(BaseException):
    def __str__(self):
        raise RuntimeError


def double(x):
    raise Odd
