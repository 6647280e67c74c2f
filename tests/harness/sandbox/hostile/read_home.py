# expect: fail
# Reads a file in the home folder.
def double(x):
    with open("@HOME@/secret.txt") as file:
        return file.read() and 2 * x
