# expect: fail
# Enters the file system of another process.
import ctypes
import os


def double(x):
    namespace = os.open("/proc/1/ns/mnt", os.O_RDONLY)
    if ctypes.CDLL(None).setns(namespace, 0):
        raise OSError
    with open("@OUTSIDE@/planted.txt") as file:
        return file.read() and 2 * x
