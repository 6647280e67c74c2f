# expect: fail
# Raises an exception with a text of a hundred megabytes.
def double(x):
    raise ValueError("x" * 10**8)
