# expect: fail
# Deletes a folder outside its scratch folder.
import shutil


def double(x):
    shutil.rmtree("@OUTSIDE@")
    return 2 * x
