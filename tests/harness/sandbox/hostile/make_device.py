# expect: fail
# Makes a device file for the first disk.
import os
import stat


def double(x):
    os.mknod("disk", stat.S_IFBLK | 0o600, os.makedev(8, 0))
    with open("disk", "rb") as file:
        return file.read(1) and 2 * x
