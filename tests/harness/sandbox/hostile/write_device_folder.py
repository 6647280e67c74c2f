# expect: fail
# Makes a file in the folder of devices, whose size nobody limits.
def double(x):
    with open("/dev/new.txt", "w") as file:
        file.write("new")
    return 2 * x
