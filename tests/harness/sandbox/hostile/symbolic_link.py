# expect: fail
# Writes outside through a symbolic link in its scratch folder.
import os


def double(x):
    if not os.path.islink("link"):
        os.symlink("@OUTSIDE@/planted.txt", "link")
    with open("link", "r+") as file:
        file.write("overwritten")
    return 2 * x
