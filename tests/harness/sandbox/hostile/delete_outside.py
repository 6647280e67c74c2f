# expect: fail
# Deletes a file outside its scratch folder.
import os


def double(x):
    os.remove("@OUTSIDE@/planted.txt")
    return 2 * x
