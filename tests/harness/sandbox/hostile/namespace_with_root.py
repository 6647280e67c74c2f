# expect: fail
# Becomes root in a user namespace of its own.
import ctypes
import os


def namespace(flags):
    libc = ctypes.CDLL(None)
    if os.getuid() == 0:  # the second call
        return libc
    user, group = os.getuid(), os.getgid()
    libc.prctl(4, 1, 0, 0, 0)  # dumpable again, so that it may write its own maps of users and groups
    if libc.unshare(0x10000000 | flags):
        raise OSError
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    return libc


def double(x):
    namespace(0)
    return 2 * x if os.getuid() == 0 else None
