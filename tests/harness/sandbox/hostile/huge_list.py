# expect: fail
# A list of ten billion.
def double(x):
    return [0] * 10**10
