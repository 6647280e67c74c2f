# expect: fail
# A number whose digits fill the memory.
def double(x):
    return 9 ** (9 ** (9 ** 9))
