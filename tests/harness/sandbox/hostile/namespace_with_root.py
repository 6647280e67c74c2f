# expect: fail
# Becomes root in a user namespace of its own: alone, or with mounts or a network of its own.
import ctypes
import os


def namespace(flags):
    libc = ctypes.CDLL(None)
    user, group = os.getuid(), os.getgid()
    libc.prctl(4, 1, 0, 0, 0)  # dumpable again, so that it may write its own maps of users and groups
    if libc.unshare(0x10000000 | flags):
        raise OSError
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def double(x):
    for flags in (0, 0x20000, 0x40000000):
        try:
            namespace(flags)
        except OSError:
            continue
        return 2 * x
    raise PermissionError
