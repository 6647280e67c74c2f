# expect: fail
# Asks for 10 GB at once.
def double(x):
    block = bytearray(10 * 2**30)
    return len(block) and 2 * x
