# expect: fail
# Moves a file from outside into its scratch folder.
import os


def double(x):
    os.rename("@OUTSIDE@/planted.txt", "mine.txt")
    return 2 * x
