# expect: fail
# Prints a gigabyte.
def double(x):
    for _ in range(1024):
        print("x" * 2**20)
    return 2 * x
