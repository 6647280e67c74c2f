# expect: fail
# Writes a gigabyte into the folder of shared memory.
def double(x):
    for number in range(100):
        with open(f"/dev/shm/big-{number}", "wb") as file:
            file.write(bytes(10 * 2**20))
    return 2 * x
