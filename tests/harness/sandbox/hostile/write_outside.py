# expect: fail
# Writes outside its scratch folder: new files, over one that is there, through another process, its own interpreter.
import os

FILES = {
    "@OUTSIDE@/new.txt": "w",
    "/new.txt": "w",
    "/dev/new.txt": "w",
    "@OUTSIDE@/planted.txt": "r+",
    "/proc/1/root/@OUTSIDE@/planted.txt": "r+",
    os.__file__: "a",
}


def double(x):
    for name, mode in FILES.items():
        try:
            with open(name, mode) as file:
                file.write("")
                return 2 * x
        except OSError:
            pass
    raise PermissionError
