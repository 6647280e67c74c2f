# expect: fail
# Does what root alone may: takes its id, leaves its root folder, makes a device, mounts, enters another's namespace.
import ctypes
import os
import stat

LIBC = ctypes.CDLL(None)


DONE = []  # by the first call: most works but once


def double(x):
    for act in (
        lambda: LIBC.setresuid(0, 0, 0),
        lambda: LIBC.chroot(b"/proc/1/root"),
        lambda: LIBC.mknod(b"disk", stat.S_IFBLK | 0o600, os.makedev(8, 0)),
        lambda: LIBC.mount(b"tmpfs", b"/usr", b"tmpfs", 0, None),
        lambda: LIBC.setns(os.open("/proc/1/ns/mnt", os.O_RDONLY), 0),
    ):
        try:
            if DONE or act() == 0:
                DONE.append(act)
        except OSError:
            pass
    return DONE and 2 * x
