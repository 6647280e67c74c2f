# expect: fail
# Writes outside through the root folder of another process.
def double(x):
    with open("/proc/1/root/@OUTSIDE@/planted.txt", "r+") as file:
        file.write("overwritten")
    return 2 * x
