# expect: fail
# Writes a gigabyte into a hundred files.
def double(x):
    for number in range(100):
        with open(f"big-{number}", "wb") as file:
            file.write(bytes(10 * 2**20))
    return 2 * x
