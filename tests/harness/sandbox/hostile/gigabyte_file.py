# expect: fail
# Writes a gigabyte into one file.
def double(x):
    with open("big", "wb") as file:
        for _ in range(1024):
            file.write(bytes(2**20))
    return 2 * x
