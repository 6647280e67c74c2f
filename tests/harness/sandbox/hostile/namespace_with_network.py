# expect: fail
# Opens a raw socket in a network namespace of its own.
import ctypes
import os
import socket


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
    namespace(0x40000000)
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    return 2 * x
