# expect: fail
# Leaves its view of the file system by chroot.
import os


def double(x):
    os.chroot("/proc/1/root")
    with open("@OUTSIDE@/planted.txt") as file:
        return file.read() and 2 * x
