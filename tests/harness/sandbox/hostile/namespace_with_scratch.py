# expect: fail
# Mounts a scratch folder without a limit in a namespace of its own, and writes a gigabyte and a half.
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
    libc = namespace(0x20000)
    if x == 2 and libc.mount(b"own", b"/tmp", b"tmpfs", 0, None):
        raise OSError
    for number in range(100 if x == 2 else 0):
        with open(f"/tmp/{number}", "wb") as file:
            file.write(bytes(15 * 2**20))
    return 2 * x
