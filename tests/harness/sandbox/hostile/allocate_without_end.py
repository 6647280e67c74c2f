# expect: fail
# Asks for a little more for ever.
def double(x):
    blocks = []
    while True:
        blocks.append(bytearray(2**24))
