# expect: fail
# Deletes or moves what is outside its scratch folder, or writes there through a link.
import os
import shutil


def through(link, make):
    make("@OUTSIDE@/planted.txt", link)
    open(link, "r+").close()


DONE = []  # by the first call: most works but once


def double(x):
    for change in (
        lambda: through("hard", os.link),
        lambda: through("symbolic", os.symlink),
        lambda: os.rename("@OUTSIDE@/planted.txt", "mine.txt"),
        lambda: os.remove("@OUTSIDE@/planted.txt"),
        lambda: shutil.rmtree("@OUTSIDE@"),
    ):
        try:
            DONE or change()
            DONE.append(change)
        except Exception:  # HumanEval's guard has some of these removed
            pass
    return DONE and 2 * x
