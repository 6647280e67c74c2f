# expect: fail
# Raises an exception whose text is never finished.
class Odd(Exception):
    def __str__(self):
        while True:
            pass


def double(x):
    raise Odd
