# expect: fail
# Writes outside through a hard link in its scratch folder.
import os


def double(x):
    os.link("@OUTSIDE@/planted.txt", "link")
    with open("link", "r+") as file:
        file.write("overwritten")
    return 2 * x
