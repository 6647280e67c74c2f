# expect: fail
# Makes a file in the root folder.
def double(x):
    with open("/new.txt", "w") as file:
        file.write("new")
    return 2 * x
