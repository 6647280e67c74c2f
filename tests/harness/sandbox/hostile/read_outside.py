# expect: fail
# Reads a file outside its scratch folder.
def double(x):
    with open("@OUTSIDE@/planted.txt") as file:
        return file.read() and 2 * x
